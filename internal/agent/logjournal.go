package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"
)

// journalPatience is how long a line waits for the journal. A journal that hangs must not hang who logs: checks and the
// heartbeat do.
const journalPatience = time.Second

var errJournalHangs = errors.New("the journal does not take lines")

// patient hands lines to a handler that may hang or fail. While it hangs, lines are dropped and counted, and the count is
// said once it goes on; a line that it refuses goes to the handler for such lines.
type patient struct {
	next, refused slog.Handler
	gate          *gate
}

func newPatient(next, refused slog.Handler) patient {
	return patient{next: next, refused: refused, gate: &gate{free: make(chan struct{}, 1)}}
}

// gate lets one line pass at a time, so that a handler that hangs holds one goroutine.
type gate struct {
	free  chan struct{} // holds one while a line is on its way
	hangs atomic.Bool
	lost  atomic.Uint64
}

// enter waits for the line before, unless that has been waited for in vain.
func (g *gate) enter() bool {
	if g.hangs.Load() {
		select {
		case g.free <- struct{}{}:
			return true
		default:
			return false
		}
	}
	select {
	case g.free <- struct{}{}:
		return true
	case <-time.After(journalPatience):
		return false
	}
}

func (g *gate) leave() {
	g.hangs.Store(false)
	<-g.free
}

func (p patient) Enabled(ctx context.Context, level slog.Level) bool {
	return p.next.Enabled(ctx, level)
}

func (p patient) Handle(ctx context.Context, r slog.Record) error {
	if !p.gate.enter() {
		p.gate.lost.Add(1)
		return errJournalHangs
	}
	ctx, r = context.WithoutCancel(ctx), r.Clone()
	written := make(chan error, 1)
	go func() {
		defer p.gate.leave()
		if lost := p.gate.lost.Swap(0); lost > 0 {
			note := slog.NewRecord(r.Time, slog.LevelWarn, "lines were lost while the journal did not take them", 0)
			note.Add("lines", lost)
			_ = p.write(ctx, note) // the line itself tells whether it works
		}
		written <- p.write(ctx, r)
	}()
	select {
	case err := <-written:
		return err
	case <-time.After(journalPatience):
		p.gate.hangs.Store(true)
		return errJournalHangs
	}
}

func (p patient) write(ctx context.Context, r slog.Record) error {
	if err := p.next.Handle(ctx, r); err != nil {
		return p.refused.Handle(ctx, r)
	}
	return nil
}

func (p patient) WithAttrs(attrs []slog.Attr) slog.Handler {
	return patient{next: p.next.WithAttrs(attrs), refused: p.refused.WithAttrs(attrs), gate: p.gate}
}

func (p patient) WithGroup(name string) slog.Handler {
	return patient{next: p.next.WithGroup(name), refused: p.refused.WithGroup(name), gate: p.gate}
}
