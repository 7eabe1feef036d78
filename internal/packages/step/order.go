package step

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/fettle-dev/fettle/internal/statefile"
)

// format of the files of orders and verdicts.
const format = 1

// Order is what to run. It is handed to fettle-step as a file. All paths are absolute and of the host.
type Order struct {
	// ID comes back in the verdict.
	ID string `json:"id"`
	// Argv is the command and its arguments; no shell is involved.
	Argv []string `json:"argv"`
	// Env is the whole environment of the command.
	Env map[string]string `json:"env"`
	// Dir is the working folder, as the command sees it.
	Dir string `json:"dir"`
	// Image is the folder of the unpacked image that the command is to see as its root, with the host under /root. What it
	// changes of the image is lost with it. Empty: it sees the host.
	Image string `json:"image,omitempty"`
	// ReturnCodes count as success.
	ReturnCodes []int `json:"returnCodes"`
	// Log is the file for both output streams, and with ".err" appended for standard error alone. Empty: none.
	Log string `json:"log,omitempty"`
	// Output is how much of the output is written to the journal and the log, in bytes; the rest is read and dropped.
	Output int64 `json:"output"`
	// Inhibit is why the host must not shut down while the step runs. Empty: it may.
	Inhibit string `json:"inhibit,omitempty"`
	// Verdict is the file for it.
	Verdict string `json:"verdict"`
}

// Validate reports everything that is wrong with an order at once.
func (o Order) Validate() error {
	var faults []error
	fault := func(text string, args ...any) { faults = append(faults, fmt.Errorf(text, args...)) }
	if len(o.Argv) == 0 {
		fault("argv is empty")
	}
	for name, path := range map[string]string{"argv[0]": first(o.Argv), "dir": o.Dir, "image": o.Image, "log": o.Log, "verdict": o.Verdict} {
		optional := name == "image" || name == "log" || name == "argv[0]" && len(o.Argv) == 0
		if !filepath.IsAbs(path) && (path != "" || !optional) {
			fault("%s %q is not an absolute path", name, path)
		}
	}
	if o.Output <= 0 {
		fault("output is not more than 0")
	}
	return errors.Join(faults...)
}

func first(argv []string) string {
	if len(argv) == 0 {
		return ""
	}
	return argv[0]
}

// Write stores the order durably as a file that fettle-step reads.
func (o Order) Write(path string) error {
	if err := o.Validate(); err != nil {
		return fmt.Errorf("order %s: %w", o.ID, err)
	}
	return statefile.Write(path, format, o)
}

// ReadOrder reads what Write stored.
func ReadOrder(path string) (Order, error) {
	var o Order
	if err := statefile.Read(path, format, &o); err != nil {
		return Order{}, fmt.Errorf("order: %w", err)
	}
	if err := o.Validate(); err != nil {
		return Order{}, fmt.Errorf("order %s: %w", path, err)
	}
	return o, nil
}

// Verdict is how a step ended.
type Verdict struct {
	// ID of the order.
	ID string `json:"id"`
	// Invocation is systemd's ID of the run of the unit.
	Invocation string `json:"invocation,omitempty"`
	// Began and Ended are of the host's clock; Took is by a clock that is never set.
	Began time.Time     `json:"began"`
	Ended time.Time     `json:"ended"`
	Took  time.Duration `json:"took"`
	// Exit is the exit status, -1 when it ended by a signal or was not executed.
	Exit int `json:"exit"`
	// Signal is the name of the one that ended it.
	Signal string `json:"signal,omitempty"`
	// Succeeded : the exit status is one of those that count as success.
	Succeeded bool `json:"succeeded"`
	// Stopped : it was asked to end before it did.
	Stopped bool `json:"stopped,omitempty"`
	// Fault is why it could not be executed, or not under the circumstances that were ordered.
	Fault string `json:"fault,omitempty"`
	// Tail is the end of what it printed.
	Tail string `json:"tail,omitempty"`
	// Dropped is how much of its output is in neither the journal nor the log, in bytes.
	Dropped int64 `json:"dropped,omitempty"`
}

// ReadVerdict reads a verdict. The error is fs.ErrNotExist when there is none.
func ReadVerdict(path string) (Verdict, error) {
	var v Verdict
	if err := statefile.Read(path, format, &v); err != nil {
		return Verdict{}, fmt.Errorf("verdict: %w", err)
	}
	return v, nil
}

func (o Order) succeeds(exit int) bool { return slices.Contains(o.ReturnCodes, exit) }
