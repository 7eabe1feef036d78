package child

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// become is the name of a process that becomes a command.
const become = "fettle-command"

// reportFD is where it says why it could not; the descriptor is closed by a successful execve.
const reportFD = 3

func init() { Early(become, becomeCommand) }

// becomeCommand takes a folder, the command and its arguments. It returns only when it failed.
func becomeCommand() int {
	// Also what the agent itself was started with. Kernels before 5.11 cannot do that for all at once.
	if unix.CloseRange(reportFD, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) != nil {
		syscall.CloseOnExec(reportFD)
	}
	DieFirst()
	dir, argv := os.Args[1], os.Args[2:]
	failed := failure{Op: opEnter, Errno: errnoOf(os.Chdir(dir))}
	if failed.Errno == 0 {
		path, err := exec.LookPath(argv[0])
		if err == nil {
			err = syscall.Exec(path, argv, os.Environ())
		}
		failed = failure{Op: opExecute, Errno: errnoOf(err)}
	}
	failed.write(os.NewFile(reportFD, "report"))
	return 127
}

const (
	opEnter   = "enter"
	opExecute = "execute"
)

// failure is why a command could not be executed.
type failure struct {
	Op    string
	Errno syscall.Errno
}

func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &errno):
		return errno
	case errors.Is(err, exec.ErrNotFound):
		return syscall.ENOENT
	default:
		return syscall.EINVAL
	}
}

func (f failure) write(w io.Writer) { fmt.Fprintf(w, "%s %d", f.Op, int(f.Errno)) }

// readFailure returns an *fs.PathError, nil when there was no failure.
func readFailure(report string, s Spec) error {
	var f failure
	if n, _ := fmt.Sscanf(report, "%s %d", &f.Op, &f.Errno); n != 2 {
		return nil
	}
	path := s.Argv[0]
	if f.Op == opEnter {
		path = s.dir()
	}
	return &fs.PathError{Op: f.Op, Path: path, Err: f.Errno}
}
