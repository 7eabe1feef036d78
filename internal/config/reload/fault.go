package reload

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fettle-dev/fettle/internal/config/strict"
)

// Fault says why the newest configuration is not in force as it stands, and what is.
type Fault struct {
	// Cause is what is wrong: strict.Faults, or that the file cannot be read.
	Cause error
	// InForce is what the agent runs with instead.
	InForce string
}

// Error is one line, also for very many faults.
func (f *Fault) Error() string { return summary(f.Cause) + "; in force: " + f.InForce }

// Unwrap gives the cause.
func (f *Fault) Unwrap() error { return f.Cause }

// RestartNeeded says that the configuration in force differs from the newest in keys that only a new start can change.
type RestartNeeded struct{ Keys []string }

func (r *RestartNeeded) Error() string {
	return "needs a restart to take effect: " + strings.Join(r.Keys, ", ")
}

var (
	errEmpty = errors.New("the file is empty; write {} into it if the defaults are meant")
	errGone  = errors.New("the file is gone; restart the agent if the defaults are meant")
)

// What can be in force in place of the newest configuration.
const (
	inForceLastGood = "the last valid file"
	inForceDefaults = "the defaults, since no valid file is known"
	inForceSound    = "the configuration without those values"
)

// summary puts the first few faults on one line.
func summary(err error) string {
	var faults strict.Faults
	if !errors.As(err, &faults) {
		return err.Error()
	}
	const most = 3
	var lines []string
	for i, f := range faults {
		if i == most {
			lines = append(lines, fmt.Sprintf("and %d more; `nodeagent config validate` lists them", len(faults)-most))
			break
		}
		lines = append(lines, f.String())
	}
	return strings.Join(lines, "; ")
}
