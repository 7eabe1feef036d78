package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/test/await"
)

// stubborn is a journal that a test has hang or fail.
type stubborn struct {
	slog.Handler
	hold chan struct{} // closed: it goes on
	fail error
}

func (s stubborn) Handle(ctx context.Context, r slog.Record) error {
	<-s.hold
	if s.fail != nil {
		return s.fail
	}
	return s.Handler.Handle(ctx, r)
}

// page is text that may be read while it is written.
type page struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *page) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *page) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

func TestAJournalThatHangsHangsNobody(t *testing.T) {
	var journal, stderr page
	hold := make(chan struct{})
	p := newPatient(stubborn{Handler: slog.NewTextHandler(&journal, nil), hold: hold}, slog.NewTextHandler(&stderr, nil))
	log := slog.New(p)
	log.Info("first")  // is waited for in vain, and written later
	log.Info("second") // lost
	log.With("a", 1).Info("third")
	if got := p.gate.lost.Load(); got != 2 {
		t.Errorf("%d lines are lost", got)
	}
	if err := p.Handle(t.Context(), slog.NewRecord(time.Now(), slog.LevelInfo, "fourth", 0)); !errors.Is(err, errJournalHangs) {
		t.Errorf("%v", err)
	}
	close(hold)
	await.That(t, "the journal takes lines again", func() bool { return len(p.gate.free) == 0 })
	log.Info("fifth")
	await.That(t, "the line is there", func() bool { return strings.Contains(journal.String(), "msg=fifth") })
	var said []string
	for line := range strings.Lines(journal.String()) {
		_, message, _ := strings.Cut(strings.TrimSpace(line), "msg=")
		said = append(said, message)
	}
	if want := `first|"lines were lost while the journal did not take them" lines=3|fifth`; strings.Join(said, "|") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(said, "|"), want)
	}
	if stderr.String() != "" {
		t.Errorf("stderr has %s", stderr.String())
	}
}

func TestWhatTheJournalRefusesGoesToStderr(t *testing.T) {
	var stderr page
	going := make(chan struct{})
	close(going)
	log := slog.New(newPatient(stubborn{Handler: slog.NewTextHandler(&stderr, nil), hold: going, fail: errors.New("connection refused")}, slog.NewTextHandler(&stderr, nil)))
	log.With("node", "a").Warn("check changed", "check", "cni-config")
	await.That(t, "stderr has the line", func() bool { return strings.Count(stderr.String(), "\n") == 1 })
	if !strings.Contains(stderr.String(), `msg="check changed" node=a check=cni-config`) {
		t.Errorf("%s", stderr.String())
	}
}
