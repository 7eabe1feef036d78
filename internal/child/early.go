package child

import (
	"os"
	"strconv"
)

// self is this process's own program, also after its file was replaced or removed.
const self = "/proc/self/exe"

// Early makes a process whose argv[0] is name do work instead of what its program does, and end with the status that
// work returns. Start starts such a process.
//
// It is to be called from a package's init, and work may use no other packages than that one's imports: they are all
// that is sure to be set up. Most of the agent's packages are not, which makes a process start in a millisecond or two
// and live in a quarter of the memory. And whatever program the package is linked into, a test too, is its own child.
func Early(name string, work func() int) {
	if len(os.Args) > 0 && os.Args[0] == name {
		os.Exit(work())
	}
}

// DieFirst asks the kernel to kill this process before others when memory runs out. Raising one's own score takes no
// privilege; where /proc is not writable the score stays that of the parent.
func DieFirst() {
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.Itoa(oomScoreMax)), 0) // best effort, see above
}

// oomScoreMax is OOM_SCORE_ADJ_MAX of linux/oom.h.
const oomScoreMax = 1000
