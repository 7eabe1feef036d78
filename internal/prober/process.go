package prober

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/fettle-dev/fettle/internal/child"
	"github.com/fettle-dev/fettle/internal/prober/server"
	"github.com/fettle-dev/fettle/internal/probes"
)

// process is one child. All but child and since is under the Prober's lock.
type process struct {
	child    *child.Process
	since    time.Time
	requests *os.File
	encoder  *json.Encoder
	pending  map[uint64]pending
	doubted  bool // a ping is under way
}

type pending struct {
	question
	call *call
}

// Errors of calls that no child could be asked.
var (
	errClosed  = errors.New("the agent is ending")
	errTooSoon = errors.New("the prober keeps ending and is not started again yet")
)

// child is the child to ask, a new one if there is none.
func (p *Prober) child() (*process, error) {
	switch {
	case p.closed:
		return nil, errClosed
	case p.current != nil:
		return p.current, nil
	case len(p.left) >= maxLeft:
		return nil, fmt.Errorf("%w, nor do %d probers that were killed end", probes.ErrHung, len(p.left))
	case time.Now().Before(p.notYet):
		return nil, errTooSoon
	}
	started, responses, err := start()
	if err != nil {
		return nil, err
	}
	p.current = started
	go p.listen(started, responses)
	return started, nil
}

func start() (*process, *os.File, error) {
	theirIn, ourOut, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer theirIn.Close()
	ourIn, theirOut, err := os.Pipe()
	if err != nil {
		ourOut.Close()
		return nil, nil, err
	}
	defer theirOut.Close()
	c, err := child.Start(server.Name, nil, server.Environment, theirIn, theirOut, os.Stderr)
	if err != nil {
		ourOut.Close()
		ourIn.Close()
		return nil, nil, err
	}
	return &process{child: c, since: time.Now(), requests: ourOut, encoder: json.NewEncoder(ourOut), pending: map[uint64]pending{}}, ourIn, nil
}

// send never blocks for long: a pipe takes hundreds of requests, and there is at most one for each question.
func (of *process) send(r server.Request) error {
	_ = of.requests.SetWriteDeadline(time.Now().Add(time.Second)) // pipes have deadlines
	return of.encoder.Encode(r)
}

func (of *process) kill() { of.child.Kill() }

// listen takes in a child's answers until there are no more: it ended, or writes nonsense and is ended.
func (p *Prober) listen(of *process, responses *os.File) {
	defer responses.Close()
	defer of.requests.Close()
	for answers := json.NewDecoder(responses); ; {
		var r server.Response
		if answers.Decode(&r) != nil {
			break
		}
		p.mu.Lock()
		if w, waits := of.pending[r.ID]; waits {
			p.settle(of, r.ID, w, r, nil)
		}
		p.mu.Unlock()
	}
	of.kill()
	<-of.child.Done()
	p.ended(of)
}
