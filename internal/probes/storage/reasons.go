package storage

import "github.com/fettle-dev/fettle/internal/reasons"

// Reasons of the checks of file systems. A reason that several checks can give means the same in each.
const (
	ReadOnly        = "FilesystemReadOnly"
	SpaceExhausted  = "SpaceExhausted"
	SpaceLow        = "SpaceLow"
	InodesExhausted = "InodesExhausted"
	InodesLow       = "InodesLow"
	Unreadable      = "FilesystemUnreadable"
	Hung            = "MountHung"
	Frozen          = "MountFrozen"
	Missing         = "MountMissing"
	Failing         = "MountFailing"
	NotWritable     = "MountNotWritable"
	NotCheckable    = "MountNotCheckable"
	WrongSource     = "MountSourceWrong"
	WrongFSType     = "MountFSTypeWrong"
	WrongOptions    = "MountOptionsWrong"
)

// What the tables of the checks are made of. All of it is API.
var (
	readOnly   = reasons.Reason{Name: ReadOnly, Severity: reasons.Fatal, Says: "the file system has become read-only", Do: "look for I/O errors in the kernel's log; a file system that the kernel made read-only needs a check or a new disk"}
	unreadable = reasons.Reason{Name: Unreadable, Severity: reasons.Unknown, Says: "the state of the file system could not be read", Do: "see the message"}
	hung       = reasons.Reason{Name: Hung, Severity: reasons.Fatal, Says: "a call that only asks for the size of the file system does not return", Do: "see whether the server or device behind the mount answers; what hangs there cannot be killed, so unmount it by force or reboot"}
	missing    = reasons.Reason{Name: Missing, Severity: reasons.Fatal, Says: "a file system that should be mounted is not", Do: "see why in the journal of its mount unit; what was written to the folder meanwhile lies on the file system below"}

	fillReasons = reasons.Table{
		{Name: SpaceExhausted, Severity: reasons.Fatal, Says: "hardly any space is free", Do: "remove images, logs and dumps, or enlarge the file system"},
		{Name: InodesExhausted, Severity: reasons.Fatal, Says: "hardly any inodes are free, so that no files can be made although there may be space", Do: "find the folder with very many small files"},
		{Name: SpaceLow, Severity: reasons.Degraded, Says: "little space is free", Do: "remove images, logs and dumps, or enlarge the file system, before it is full"},
		{Name: InodesLow, Severity: reasons.Degraded, Says: "few inodes are free", Do: "find the folder with very many small files"},
	}
)
