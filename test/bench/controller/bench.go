package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/fettle-dev/fettle/test/controlplane"
	"github.com/fettle-dev/fettle/test/fleet"
)

// sizes say how large a run is.
type sizes struct {
	nodes, burst, flapping, rules, pairs int
	span                                 time.Duration
}

func (s sizes) validate() error {
	if s.burst < 1 || s.nodes < s.burst || s.flapping < 1 || s.rules < 1 || s.pairs < 1 || s.span <= 0 {
		return errors.New("all sizes must be at least 1, and there must not be more nodes in the burst than nodes")
	}
	return nil
}

// bench is a cluster, its nodes, and the controller while one runs.
type bench struct {
	sizes
	cluster *cluster
	tracker *tracker
	out     io.Writer

	fleets       []*fleet.Fleet
	ours, theirs *loop
	running      *controller
}

// part is one thing that is measured. Later parts find the nodes and the controller as earlier ones left them.
type part struct {
	name string
	// always: later parts need what it does.
	always bool
	run    func(*bench, context.Context) error
}

var parts = []part{
	{"join", true, (*bench).joinFirst},
	{"burst", false, (*bench).allAtOnce},
	{"edit", false, (*bench).editRule},
	{"joinall", true, (*bench).joinRest},
	{"restart", false, (*bench).restart},
	{"steady", false, (*bench).steadyWithoutLeases},
	{"leases", false, (*bench).steadyWithLeases},
	{"flapping", false, (*bench).flap},
	{"leader", false, (*bench).changeLeader},
	{"apiserver", false, (*bench).restartAPIServer},
}

func partNames() []string {
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

// run measures the parts chosen, and those that they need.
func run(ctx context.Context, out io.Writer, s sizes, choose func(string) bool) (err error) {
	b, stop, err := open(ctx, out, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	fmt.Fprintf(out, "%d nodes, %d rules, on %d processors that the API server, etcd, the simulated agents and this program share; %d writes in flight\n",
		s.nodes, s.rules, runtime.NumCPU(), workers)
	for _, p := range parts {
		if !p.always && !choose(p.name) {
			continue
		}
		if err := p.run(b, ctx); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if err := b.check(ctx); err != nil {
			return fmt.Errorf("after %s: %w", p.name, err)
		}
	}
	return nil
}

// open starts a cluster with the rules and without nodes.
func open(ctx context.Context, out io.Writer, s sizes) (b *bench, stop func() error, err error) {
	if err := s.validate(); err != nil {
		return nil, nil, err
	}
	c, err := newCluster(ctx)
	if err != nil {
		return nil, nil, err
	}
	b = &bench{sizes: s, cluster: c, tracker: newTracker(s.rules), out: out}
	b.ours, b.theirs = &loop{bench: b}, &loop{bench: b, bare: true}
	following, unfollow := context.WithCancel(ctx)
	go b.tracker.follow(following, c.clients)
	stop = func() error {
		unfollow()
		for _, f := range b.fleets {
			f.Stop()
		}
		if b.running != nil {
			b.running.end(b.running.Kill)
		}
		return c.Stop()
	}
	if err := b.makeRules(ctx); err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return b, stop, nil
}

// begin starts the controller unless it runs, and waits until it leads and has done what there is to do.
func (b *bench) begin(ctx context.Context) (err error) {
	if b.running == nil {
		if b.running, err = b.cluster.start(ctx); err != nil {
			return err
		}
	}
	if err := b.cluster.leads(ctx); err != nil {
		return err
	}
	if err := b.quiet(ctx); err != nil {
		return err
	}
	b.running.processor()
	b.tracker.take() // what came before is not to be measured
	return nil
}

// end stops the controller, so that the bare loop has the machine for itself.
func (b *bench) end() {
	if b.running != nil {
		b.running.stop()
		b.running = nil
	}
}

// settleLimit only ends a run that would wait for ever.
const settleLimit = 5 * time.Minute

// settled waits until every taint is as wanted. A controller that has ended meanwhile is started again, as a kubelet would:
// on a machine that is too busy it loses its lease.
func (b *bench) settled(ctx context.Context) error {
	for end := time.Now().Add(settleLimit); ; {
		open, example := b.tracker.open()
		if open == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("not right within %s: %d taints, e.g. %s", settleLimit, open, example)
		}
		if err := b.revive(ctx); err != nil {
			return err
		}
		if err := wait(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

// revive starts a controller again that has ended by itself.
func (b *bench) revive(ctx context.Context) (err error) {
	if b.running == nil {
		return nil
	}
	failure := b.running.Failure()
	if failure == nil {
		return nil
	}
	fmt.Fprintf(b.out, "the controller has ended by itself and is started again: %v\n", failure)
	b.running.end(func() {})
	b.running, err = b.cluster.start(ctx)
	return err
}

// quiet waits until every taint is right and the controller has written nothing for a while.
func (b *bench) quiet(ctx context.Context) error {
	if err := b.settled(ctx); err != nil {
		return err
	}
	for {
		mark, err := b.mark(ctx)
		if err != nil {
			return err
		}
		if err := wait(ctx, 1500*time.Millisecond); err != nil { // longer than the least time between two writes of a rule's status
			return err
		}
		since, err := b.writes(ctx, mark)
		if err != nil || len(since) == 0 {
			return err
		}
	}
}

func (b *bench) mark(ctx context.Context) (controlplane.Mark, error) {
	if err := ctx.Err(); err != nil {
		return controlplane.Mark{}, err
	}
	return b.cluster.Mark() //nolint:contextcheck // it bounds itself
}

// requestsSince gives what the controller asked of the API server since a mark.
func (b *bench) requestsSince(ctx context.Context, mark controlplane.Mark) (controlplane.Requests, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	all, err := b.cluster.RequestsSince(mark) //nolint:contextcheck // it bounds itself
	return all.By(controllerUser), err
}

// writes gives what the controller wrote since a mark, but for leases.
func (b *bench) writes(ctx context.Context, mark controlplane.Mark) (controlplane.Requests, error) {
	since, err := b.requestsSince(ctx, mark)
	return since.Writes().Where(func(r controlplane.Request) bool { return r.Resource != "leases" }), err
}

// join adds nodes and their agents to a pool and lets them report that all is fine.
func (b *bench) join(ctx context.Context, l *loop, prefix, pool string, count int) error {
	labels := map[string]string{poolLabel: pool}
	for i := range 20 {
		labels[fmt.Sprintf("example.com/label-%d", i)] = "some-value"
	}
	f, err := fleet.Start(ctx, b.cluster.Config(), fleet.Options{Nodes: count, Prefix: prefix, Labels: labels, Images: 20, NoLeases: pool == bare})
	if err != nil {
		return err
	}
	b.fleets = append(b.fleets, f)
	var joined []*node
	for i := range count {
		joined = append(joined, &node{name: f.Name(i), fine: make([]bool, b.rules)})
	}
	l.nodes = append(l.nodes, joined...)
	if err := each(joined, func(n *node) error { return l.report(ctx, n) }); err != nil {
		return err
	}
	if err := b.settled(ctx); err != nil {
		return err
	}
	b.tracker.take() // they had not changed before
	return nil
}

func (b *bench) restLeases(rest bool) {
	for _, f := range b.fleets {
		f.RestLeases(rest)
	}
}
