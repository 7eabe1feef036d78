package prober

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fettle-dev/fettle/internal/prober/server"
	"github.com/fettle-dev/fettle/internal/probes"
)

const (
	// pongWithin is how long a child may take to answer what touches no file, before it is replaced. Long, so that a busy
	// machine's child is not.
	pongWithin = 15 * time.Second
	// maxLeft is how many children that could not be killed are left behind before no more are started.
	maxLeft = 2
	// A child that ended is replaced at once. One that lived shorter than steady is replaced after a second, the next one
	// after two, and so on up to maxWait.
	steady  = time.Minute
	maxWait = time.Minute
	// farewell is how long a child may take to end when it is told to.
	farewell = time.Second
)

// Prober makes calls in a child. It is a probes.Files. All methods may be called at the same time.
type Prober struct {
	log *slog.Logger

	mu      sync.Mutex
	pong    time.Duration // pongWithin, but in tests
	closed  bool
	current *process           // nil: none was needed yet, or it ended
	left    map[*process]bool  // could not be killed
	calls   map[question]*call // that have not returned
	lastID  uint64
	short   int       // children in a row that did not live long
	notYet  time.Time // when the next child may be started
}

var _ probes.Files = (*Prober)(nil)

// New makes a Prober without a child yet.
func New(log *slog.Logger) *Prober {
	return &Prober{log: log, pong: pongWithin, left: map[*process]bool{}, calls: map[question]*call{}}
}

// question is what a call asks. A path whose writes hang may still have its statfs answered, so each counts for itself.
type question struct {
	op   server.Op
	path string
}

// call is one that was made of a child.
type call struct {
	of   *process
	hung bool // somebody waited in vain
	done chan struct{}
	// Set before done is closed.
	response server.Response
	err      error
}

// Statfs is statfs(2). What ctx's deadline passed for is an error that wraps both probes.ErrHung and ctx's; after it, and
// until the call has returned, so is every further one on the path, at once. A failed call is an *fs.PathError.
func (p *Prober) Statfs(ctx context.Context, path string) (unix.Statfs_t, error) {
	r, err := p.ask(ctx, question{server.Statfs, path})
	if err != nil {
		return unix.Statfs_t{}, err
	}
	if r.Statfs == nil {
		return unix.Statfs_t{}, fmt.Errorf("statfs %s: the prober answered something else", path)
	}
	return *r.Statfs, nil
}

// WriteCheck makes a file in a folder, writes it, syncs it, reads it back and removes it. Errors are those of Statfs; the
// Op of an *fs.PathError is the step that failed.
func (p *Prober) WriteCheck(ctx context.Context, folder string) error {
	_, err := p.ask(ctx, question{server.WriteCheck, folder})
	return err
}

func (p *Prober) ask(ctx context.Context, q question) (server.Response, error) {
	if err := ctx.Err(); err != nil {
		return server.Response{}, fmt.Errorf("%s %s: %w", q.op, q.path, err)
	}
	c, err := p.join(q)
	if err != nil {
		return server.Response{}, fmt.Errorf("%s %s: %w", q.op, q.path, err)
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		return server.Response{}, p.abandon(ctx, q, c)
	}
	if c.err != nil {
		return server.Response{}, fmt.Errorf("%s %s: %w", q.op, q.path, c.err)
	}
	return c.response, c.response.Err(q.path)
}

// join makes a call, or finds the one under way.
func (p *Prober) join(q question) (*call, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.calls[q]; c != nil {
		if c.hung {
			return nil, probes.ErrHung
		}
		return c, nil
	}
	of, err := p.child()
	if err != nil {
		return nil, err
	}
	c := &call{of: of, done: make(chan struct{})}
	if err := p.send(q, c); err != nil {
		of.kill() // its end is noticed by listen
		return nil, err
	}
	p.calls[q] = c
	return c, nil
}

func (p *Prober) send(q question, c *call) error {
	p.lastID++
	if err := c.of.send(server.Request{ID: p.lastID, Op: q.op, Path: q.path}); err != nil {
		return fmt.Errorf("ask the prober: %w", err)
	}
	c.of.pending[p.lastID] = pending{q, c}
	return nil
}

// abandon stops to wait. A deadline that passed is a verdict on the path, a caller that was told to end is none.
func (p *Prober) abandon(ctx context.Context, q question, c *call) error {
	err := ctx.Err()
	if !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s %s: %w", q.op, q.path, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c.hung = true
	p.doubt(c.of)
	return fmt.Errorf("%s %s: %w: %w", q.op, q.path, probes.ErrHung, err)
}

// doubt asks a child whether it answers at all, unless it is being asked.
func (p *Prober) doubt(of *process) {
	if of.doubted || p.current != of {
		return
	}
	ping := &call{of: of, done: make(chan struct{})}
	if p.send(question{op: server.Ping}, ping) != nil {
		of.kill()
		return
	}
	of.doubted = true
	patience := time.NewTimer(p.pong)
	go func() {
		defer patience.Stop()
		select {
		case <-ping.done:
			p.mu.Lock()
			of.doubted = false
			p.mu.Unlock()
		case <-patience.C:
			p.replace(of)
		}
	}()
}

// replace kills a child that does not answer. The next call starts a new one. Calls that cannot be killed with it hang on.
func (p *Prober) replace(of *process) {
	p.log.Warn("the prober does not answer and is killed", "pid", of.child.Pid)
	if of.child.End() {
		return // listen does the rest
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-of.child.Done():
		return
	default:
	}
	p.log.Warn("the prober cannot be killed and is left behind", "pid", of.child.Pid)
	p.left[of] = true
	if p.current == of {
		p.current = nil
	}
	for _, w := range of.pending {
		w.call.hung = true
	}
}

// ended takes in that a child is gone, and with it its calls.
func (p *Prober) ended(of *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.left, of)
	for id, w := range of.pending {
		p.settle(of, id, w, server.Response{}, fmt.Errorf("the prober ended: %s", of.child.Ended()))
	}
	if p.current != of {
		return
	}
	p.current = nil
	if p.closed {
		return
	}
	now := time.Now()
	if now.Sub(of.since) >= steady {
		p.short = 0
	} else {
		p.short++
	}
	p.notYet = now
	if p.short > 1 {
		p.notYet = now.Add(min(time.Second<<min(p.short-2, 10), maxWait))
	}
	p.log.Warn("the prober ended; the next call starts it again", "how", of.child.Ended(), "notBefore", p.notYet)
}

func (p *Prober) settle(of *process, id uint64, w pending, r server.Response, err error) {
	delete(of.pending, id)
	if p.calls[w.question] == w.call {
		delete(p.calls, w.question)
	}
	w.call.response, w.call.err = r, err
	close(w.call.done)
}

// Close ends the child. Calls that wait fail; later ones too.
func (p *Prober) Close() {
	p.mu.Lock()
	p.closed = true
	of := p.current
	p.mu.Unlock()
	if of == nil {
		return
	}
	of.requests.Close()
	patience := time.NewTimer(farewell)
	defer patience.Stop()
	select {
	case <-of.child.Done():
	case <-patience.C:
		of.child.End()
	}
}
