package runner

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fettle-dev/fettle/internal/interrupts"
	"github.com/fettle-dev/fettle/internal/packages/format"
	"github.com/fettle-dev/fettle/internal/packages/stages"
	"github.com/fettle-dev/fettle/internal/statefile"
)

// memoryFormat is that of the file.
const memoryFormat = 1

// kept is what a runner has to remember of one NodeWright.
type kept struct {
	UID string `json:"uid"`
	// Host is what became of the packages.
	Host stages.Host `json:"host"`
	// Attempts are under way, by the name of the package.
	Attempts map[string]attempt `json:"attempts,omitempty"`
	// Reboot is the last that was wanted.
	Reboot interrupts.Reboot `json:"reboot,omitzero"`
	// Notes say of packages why they are where they are.
	Notes map[string]Note `json:"notes,omitempty"`
}

// attempt is one at a stage: which of its steps is next, or runs.
type attempt struct {
	Task stages.Task `json:"task"`
	// Boot and Began are the boot and the time since it at which the attempt began. It does not outlive its boot.
	Boot  string        `json:"boot"`
	Began time.Duration `json:"began"`
	// Mode and Step are where it is.
	Mode format.Mode `json:"mode"`
	Step int         `json:"step"`
	// Failed has a result for each step of a check so far.
	Failed []bool `json:"failed,omitempty"`
}

// Note says what is known of the last attempt at a stage.
type Note struct {
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
	// Tail is the end of what the step printed.
	Tail string    `json:"tail,omitempty"`
	At   time.Time `json:"at"`
}

// memory is the durable state of a runner.
type memory struct {
	path string

	mu sync.Mutex
	// all is by NodeWright. Guarded by mu.
	all map[string]kept
}

// mark is in the names of all units of the attempt.
func (a attempt) mark(uid string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s %d %d %d %s", uid, a.Task.Name, a.Task.Version, a.Task.Epoch, a.Task.Attempt, a.Began, a.Boot))
	return hex.EncodeToString(sum[:6])
}

// sweep removes the orders and verdicts of attempts that are over.
func (m *memory) sweep(folder string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	live := map[string]bool{}
	for _, k := range m.all {
		for _, a := range k.Attempts {
			live[a.mark(k.UID)] = true
		}
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.service.*"))
	if err != nil {
		return err
	}
	var faults []error
	for _, file := range files {
		name, _, _ := strings.Cut(filepath.Base(file), ".service.")
		if !live[name[strings.LastIndex(name, "-")+1:]] {
			faults = append(faults, removeIfThere(file))
		}
	}
	return errors.Join(faults...)
}

// open reads what an earlier runner left. An error says that it cannot be known what was done to the host.
func open(dir string) (*memory, error) {
	m := &memory{path: filepath.Join(dir, "work.json"), all: map[string]kept{}}
	if err := statefile.Read(m.path, memoryFormat, &m.all); err != nil && !statefile.Missing(err) {
		return nil, fmt.Errorf("what was done to this host is not known any more: %w", err)
	}
	return m, nil
}

// get returns a copy that may be kept, though not changed.
func (m *memory) get(nodeWright string) kept {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[nodeWright]
}

// change stores a change durably, and returns only then. When it cannot be stored nothing has changed.
func (m *memory) change(nodeWright string, change func(kept) kept) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := make(map[string]kept, len(m.all)+1)
	for name, k := range m.all {
		next[name] = k
	}
	next[nodeWright] = change(next[nodeWright].clone())
	if err := statefile.Write(m.path, memoryFormat, next); err != nil {
		return err
	}
	m.all = next
	return nil
}

func (k kept) clone() kept {
	attempts, notes := make(map[string]attempt, len(k.Attempts)), make(map[string]Note, len(k.Notes))
	for name, a := range k.Attempts {
		attempts[name] = a
	}
	for name, n := range k.Notes {
		notes[name] = n
	}
	k.Attempts, k.Notes = attempts, notes
	return k
}
