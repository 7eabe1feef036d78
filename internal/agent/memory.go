package agent

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/statefile"
)

const (
	// memoryFormat is the number of the format of health.Snapshot on disk.
	memoryFormat = 1
	// savesApart is the shortest time between two saves while the agent runs.
	savesApart = 3 * time.Second
	// saveAgainAfter is the time to the next try after a save that failed.
	saveAgainAfter = 30 * time.Second
	// saveFirst bounds how long what is to be said waits for the disk. A disk that takes longer is not waited for until it
	// has answered.
	saveFirst = 2 * time.Second
)

// memory keeps what the health engine must know of checks after a restart in a file of the state folder. What cannot be
// kept is kept in mind as long as the process lives, and tried again.
//
// After a crash the file holds what was last saved, and never a part. A verdict that changed is saved at once, a fault
// before it is said, if the disk takes it; what is only counted is at most savesApart behind.
type memory struct {
	path              string // empty: nothing is kept
	log               *slog.Logger
	apart, againAfter time.Duration
	patience          time.Duration // of settle
	wake, hurry       chan struct{}
	mu                sync.Mutex
	latest            *health.Snapshot // to be saved; nil when nothing is
	noted, tried      uint64           // how many snapshots were noted, and how many of them a save has taken in, whatever came of it
	slow              bool             // whether a save takes longer than patience
	saved             []byte           // what is in the file
	fault             string           // why the last save failed
	lost              error            // why what was kept could not be recalled; nil where there was nothing
	saves             bell             // rings after each save
}

// openMemory recalls what is kept in a state folder, "" for none. A file that cannot be used is moved aside, to a name that
// ends in .damaged, and nothing is recalled.
func openMemory(stateDir string, log *slog.Logger) (*memory, health.Snapshot) {
	m := &memory{log: log, apart: savesApart, againAfter: saveAgainAfter, patience: saveFirst, wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1)}
	if stateDir == "" {
		return m, health.Snapshot{}
	}
	m.path = filepath.Join(stateDir, "health.json")
	var remembered health.Snapshot
	err := statefile.Read(m.path, memoryFormat, &remembered)
	switch {
	case err == nil:
		m.saved, _ = json.Marshal(remembered) // it was just decoded; failing to compare saves once more
		return m, remembered
	case !statefile.Missing(err):
		m.lost = err
		m.setAside(err)
	}
	return m, health.Snapshot{}
}

func (m *memory) setAside(why error) {
	aside, err := statefile.SetAside(m.path)
	if err != nil {
		m.log.Warn("what was known of the checks before cannot be used, nor moved aside; they are looked at afresh", "error", why, "move", err)
		return
	}
	m.log.Warn("what was known of the checks before cannot be used; they are looked at afresh", "error", why, "kept", aside)
}

// note takes what is to be kept, at once when it says so. It does not block.
func (m *memory) note(s health.Snapshot, atOnce bool) {
	m.mu.Lock()
	m.latest = &s
	m.noted++
	m.mu.Unlock()
	nudge(m.wake)
	if atOnce {
		nudge(m.hurry)
	}
}

// settle waits until what was noted is saved, or could not be, while run runs. It waits no longer than patience, and not at
// all for a disk that already took longer.
func (m *memory) settle() {
	limit := time.NewTimer(m.patience)
	defer limit.Stop()
	for {
		saved := m.saves.stroke()
		m.mu.Lock()
		settled := m.tried == m.noted || m.slow
		m.mu.Unlock()
		if settled {
			return
		}
		select {
		case <-saved:
		case <-limit.C:
			m.mu.Lock()
			m.slow = true
			m.mu.Unlock()
			m.log.Warn("a fault is told before it is kept, since the disk is slow; if the agent ends now, it is forgotten", "file", m.path)
		}
	}
}

func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// start has what is noted saved. end, called after whoever notes has ended, saves the last of it.
func (m *memory) start() (end func()) {
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		m.run(stop)
	}()
	return func() {
		close(stop)
		<-ended
		m.save()
	}
}

// run saves what is noted until stop is closed.
func (m *memory) run(stop <-chan struct{}) {
	for {
		var again <-chan time.Time
		if m.fault != "" {
			again = time.After(m.againAfter)
		}
		select {
		case <-stop:
			return
		case <-m.wake:
		case <-again:
		}
		select {
		case <-m.hurry: // this save is the one
		default:
		}
		m.save()
		select {
		case <-stop:
			return
		case <-m.hurry:
			nudge(m.wake)
		case <-time.After(m.apart):
		}
	}
}

func (m *memory) save() {
	m.mu.Lock()
	latest, noted := m.latest, m.noted
	m.mu.Unlock()
	defer m.answered(noted)
	if latest == nil || m.path == "" {
		return
	}
	if err := m.write(latest); err != nil {
		if fault := err.Error(); fault != m.fault {
			m.fault = fault
			m.log.Warn("what is known of the checks cannot be kept over a restart; the agent works on without", "error", err)
		}
		return
	}
	if m.fault != "" {
		m.fault = ""
		m.log.Info("what is known of the checks is kept over a restart again")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.latest == latest {
		m.latest = nil
	}
}

// answered lets go on who waits for a save of as many snapshots.
func (m *memory) answered(noted uint64) {
	m.mu.Lock()
	m.tried, m.slow = noted, false
	m.mu.Unlock()
	m.saves.strike()
}

// write replaces the file unless it has that content.
func (m *memory) write(s *health.Snapshot) error {
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if bytes.Equal(raw, m.saved) {
		return nil
	}
	if err := statefile.Write(m.path, memoryFormat, json.RawMessage(raw)); err != nil {
		return err
	}
	m.saved = raw
	return nil
}
