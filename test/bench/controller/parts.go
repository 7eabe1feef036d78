package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fettle-dev/fettle/test/controlplane"
)

func (b *bench) joinFirst(ctx context.Context) error {
	if err := b.begin(ctx); err != nil {
		return err
	}
	if err := b.joinAll(ctx, "a-", b.burst, "60"); err != nil {
		return err
	}
	b.restLeases(true)
	b.end()
	return b.join(ctx, b.theirs, "bare-", bare, b.burst)
}

func (b *bench) joinRest(ctx context.Context) error {
	if b.nodes == b.burst {
		return b.begin(ctx)
	}
	if err := b.begin(ctx); err != nil {
		return err
	}
	return b.joinAll(ctx, "b-", b.nodes-b.burst, "150")
}

// joinAll lets nodes join in a burst: each is created, and some time later its agent and a reporter say that all is fine.
func (b *bench) joinAll(ctx context.Context, prefix string, count int, budget string) error {
	r := newReport(b.out, fmt.Sprintf("%d nodes join in a burst, %d in all", count, count+len(b.ours.nodes)))
	defer r.end()
	mark, err := b.mark(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := b.join(ctx, b.ours, prefix, controlled, count); err != nil {
		return err
	}
	right := time.Since(began)
	if err := b.quiet(ctx); err != nil {
		return err
	}
	since, err := b.requestsSince(ctx, mark)
	if err != nil {
		return err
	}
	exposed := distribution(b.tracker.takeJoins())
	r.row("all have joined and all taints are right, s", seconds(right), "", "", "")
	for i, name := range []string{"p50", "p99", "max"} {
		r.row("created→tainted "+name+", ms", millis(exposed[i]), "", "", "")
	}
	return b.usage(r, since, budget)
}

// usage prints what the controller took.
func (b *bench) usage(r *report, since controlplane.Requests, budget string) error {
	now, peak, err := b.running.memory()
	if err != nil {
		return err
	}
	r.row("processor, s", fmt.Sprintf("%.2f", b.running.processor()), "", "", "")
	r.row("resident now, MiB", mib(now), "", "", budget)
	r.row("resident at its peak, MiB", mib(peak), "", "", budget)
	r.requests = since
	return nil
}

// allAtOnce changes one condition of many nodes as fast as the workers can, and times until all taints are right.
func (b *bench) allAtOnce(ctx context.Context) error {
	r := newReport(b.out, fmt.Sprintf("%d nodes change at once; medians of %d pairs", b.burst, b.pairs))
	defer r.end()
	var ours, theirs, ratios []float64
	var tookOurs, tookTheirs []time.Duration
	once := func(l *loop) (float64, error) {
		began := time.Now()
		if err := each(l.nodes, func(n *node) error { return l.turn(ctx, n, 0) }); err != nil {
			return 0, err
		}
		if err := b.settled(ctx); err != nil {
			return 0, err
		}
		return time.Since(began).Seconds(), nil
	}
	controller := func() error {
		if err := b.begin(ctx); err != nil {
			return err
		}
		mark, err := b.mark(ctx)
		if err != nil {
			return err
		}
		took, err := once(b.ours)
		if err != nil {
			return err
		}
		ours = append(ours, took)
		all, _ := b.tracker.take()
		tookOurs = append(tookOurs, all...)
		if err := b.quiet(ctx); err != nil { // what events there are belongs to it
			return err
		}
		if len(ours) == b.pairs {
			since, err := b.requestsSince(ctx, mark)
			if err != nil {
				return err
			}
			r.requests = since
			r.row("processor, one pair, s", fmt.Sprintf("%.2f", b.running.processor()), "", "", "")
		}
		b.end()
		return nil
	}
	bareLoop := func() error {
		took, err := once(b.theirs)
		if err != nil {
			return err
		}
		theirs = append(theirs, took)
		all, _ := b.tracker.take()
		tookTheirs = append(tookTheirs, all...)
		return nil
	}
	for i := range b.pairs {
		if err := interleaved(i, controller, bareLoop); err != nil {
			return err
		}
		ratios = append(ratios, ours[i]/theirs[i])
	}
	r.row("all taints are right, s", fmt.Sprintf("%.2f", median(ours)), fmt.Sprintf("%.2f", median(theirs)), fmt.Sprintf("%.2f", median(ratios)), "1.30")
	r.latencies(tookOurs, tookTheirs, "")
	return nil
}

// editRule lets one edit of a rule change a taint of every node, and the edit be taken back, which is not timed.
func (b *bench) editRule(ctx context.Context) error {
	r := newReport(b.out, fmt.Sprintf("one edit of a rule over %d nodes; medians of %d pairs", len(b.ours.nodes), b.pairs))
	defer r.end()
	timed := func(there, back func() error) (float64, error) {
		began := time.Now()
		if err := there(); err != nil {
			return 0, err
		}
		if err := b.settled(ctx); err != nil {
			return 0, err
		}
		took := time.Since(began).Seconds()
		if err := back(); err != nil {
			return 0, err
		}
		return took, b.settled(ctx)
	}
	var ours, theirs, ratios []float64
	for i := range b.pairs {
		err := interleaved(i, func() error {
			if err := b.begin(ctx); err != nil {
				return err
			}
			took, err := timed(
				func() error { return b.require(ctx, 0, corev1.ConditionFalse) },
				func() error { return b.require(ctx, 0, corev1.ConditionTrue) })
			if err != nil {
				return err
			}
			ours = append(ours, took)
			if err := b.quiet(ctx); err != nil {
				return err
			}
			b.end()
			return nil
		}, func() error {
			turn := func() error {
				return each(b.theirs.nodes, func(n *node) error { return b.theirs.turnTaint(ctx, n, 0) })
			}
			took, err := timed(turn, turn)
			theirs = append(theirs, took)
			return err
		})
		if err != nil {
			return err
		}
		ratios = append(ratios, ours[i]/theirs[i])
	}
	r.row("all taints are right, s", fmt.Sprintf("%.2f", median(ours)), fmt.Sprintf("%.2f", median(theirs)), fmt.Sprintf("%.2f", median(ratios)), "")
	return nil
}

// interleaved runs a pair, every other one the other way round.
func interleaved(i int, first, second func() error) error {
	if i%2 == 1 {
		first, second = second, first
	}
	if err := first(); err != nil {
		return err
	}
	return second()
}

// restart stops the controller and starts it again while nothing changes.
func (b *bench) restart(ctx context.Context) error {
	b.restLeases(true)
	if err := b.begin(ctx); err != nil {
		return err
	}
	b.end()
	r := newReport(b.out, fmt.Sprintf("restart with %d quiet nodes", b.nodes))
	defer r.end()
	mark, err := b.mark(ctx)
	if err != nil {
		return err
	}
	if b.running, err = b.cluster.start(ctx); err != nil {
		return err
	}
	if err := b.cluster.leads(ctx); err != nil {
		return err
	}
	if err := wait(ctx, b.span); err != nil {
		return err
	}
	since, err := b.requestsSince(ctx, mark)
	if err != nil {
		return err
	}
	r.row("ready, s", seconds(b.running.ready), "", "", "5")
	r.row(fmt.Sprintf("writes in the first %s", b.span), requests(since.Writes()), "", "", "leases alone")
	return b.usage(r, since, "150")
}

func (b *bench) steadyWithoutLeases(ctx context.Context) error {
	b.restLeases(true)
	return b.steadily(ctx, "no leases")
}

func (b *bench) steadyWithLeases(ctx context.Context) error {
	b.restLeases(false)
	defer b.restLeases(true)
	return b.steadily(ctx, fmt.Sprintf("%d leases every 10 s", b.nodes))
}

// steadily changes conditions at half the rate that the bare loop can sustain.
func (b *bench) steadily(ctx context.Context, leases string) error {
	b.end()
	most, err := b.theirs.flatOut(ctx, b.span/2)
	if err != nil {
		return err
	}
	if err := b.settled(ctx); err != nil {
		return err
	}
	b.tracker.take()
	rate := most / 2
	r := newReport(b.out, fmt.Sprintf("%d nodes × %d rules, %s; %.0f changes a second, half of what the bare loop can", b.nodes, b.rules, leases, rate))
	defer r.end()
	var ours, theirs []time.Duration
	changes := b.ours.changes.Load()
	late := [2]int{}
	var since controlplane.Requests
	processor := 0.0
	for i := range b.pairs {
		err := interleaved(i, func() error {
			if err := b.begin(ctx); err != nil {
				return err
			}
			mark, err := b.mark(ctx)
			if err != nil {
				return err
			}
			took, overdue, err := b.load(ctx, b.ours, rate)
			if err != nil {
				return err
			}
			ours, late[0] = append(ours, took...), late[0]+overdue
			part, err := b.requestsSince(ctx, mark)
			if err != nil {
				return err
			}
			since = append(since, part...)
			processor += b.running.processor()
			b.end()
			return nil
		}, func() error {
			took, overdue, err := b.load(ctx, b.theirs, rate)
			theirs, late[1] = append(theirs, took...), late[1]+overdue
			return err
		})
		if err != nil {
			return err
		}
	}
	changes = b.ours.changes.Load() - changes
	r.latencies(ours, theirs, "2.00")
	r.row("changes", fmt.Sprint(changes), "", "", "")
	r.row("writes of nodes a change", fmt.Sprintf("%.3f", float64(since.Counts()["patch nodes"])/float64(max(changes, 1))), "1", "", "1")
	r.row("changes that were late", fmt.Sprint(late[0]), fmt.Sprint(late[1]), "", "")
	r.row("processor, ms a change", fmt.Sprintf("%.2f", 1000*processor/float64(max(changes, 1))), "", "", "")
	r.requests = since
	return nil
}

// load runs a steady load to its end.
func (b *bench) load(ctx context.Context, l *loop, rate float64) ([]time.Duration, int, error) {
	late, err := l.steady(ctx, rate, b.span, false)
	if err != nil {
		return nil, late, err
	}
	if err := b.settled(ctx); err != nil {
		return nil, late, err
	}
	took, _ := b.tracker.take()
	return took, late, nil
}

// flap lets all conditions of some nodes change as fast as they can be written.
func (b *bench) flap(ctx context.Context) error {
	if err := b.begin(ctx); err != nil {
		return err
	}
	some := &loop{bench: b, nodes: b.ours.nodes[:min(b.flapping, len(b.ours.nodes))]}
	r := newReport(b.out, fmt.Sprintf("%d rules flap on %d nodes", b.rules, len(some.nodes)))
	defer r.end()
	mark, err := b.mark(ctx)
	if err != nil {
		return err
	}
	rate, err := some.flatOut(ctx, b.span)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := b.settled(ctx); err != nil {
		return err
	}
	behind := time.Since(began)
	took, overtaken := b.tracker.take()
	if err := b.quiet(ctx); err != nil {
		return err
	}
	since, err := b.requestsSince(ctx, mark)
	if err != nil {
		return err
	}
	changes := some.changes.Load()
	b.ours.changes.Add(changes)
	r.row("changes a second", fmt.Sprintf("%.0f", rate), "", "", "")
	r.row("right after the last change, s", seconds(behind), "", "", "")
	r.latencies(took, nil, "")
	r.row("changes back before the taint came", fmt.Sprint(overtaken), "", "", "")
	r.row("writes of nodes a change", fmt.Sprintf("%.3f", float64(since.Counts()["patch nodes"])/float64(max(changes, 1))), "", "", "1")
	return b.usage(r, since, "150")
}

// loadRate is a steady load that leaves the machine room.
const loadRate = 30.0

// changeLeader lets a second controller take over under load, once in a rollout and once after a kill.
func (b *bench) changeLeader(ctx context.Context) error {
	for _, how := range []struct {
		name string
		end  func(*controller)
	}{
		{"the leader is stopped", (*controller).stop},
		{"the leader is killed", func(c *controller) { c.end(c.Kill) }},
	} {
		if err := b.begin(ctx); err != nil {
			return err
		}
		b.tracker.take()
		successor, err := b.cluster.start(ctx)
		if err != nil {
			return err
		}
		former := b.running
		b.running = successor
		took, err := b.through(ctx, func() error { how.end(former); return nil })
		if err != nil {
			return err
		}
		r := newReport(b.out, fmt.Sprintf("%s under load, %.0f changes a second; a successor stands by", how.name, loadRate))
		r.latencies(took, nil, "")
		r.end()
	}
	return nil
}

// through runs a steady load, lets something happen in the middle of it, and waits until all is right.
func (b *bench) through(ctx context.Context, happen func() error) ([]time.Duration, error) {
	happened := make(chan error, 1)
	go func() {
		if err := wait(ctx, b.span/3); err != nil {
			happened <- err
			return
		}
		happened <- happen()
	}()
	_, err := b.ours.steady(ctx, loadRate, b.span, true)
	if fault := <-happened; fault != nil {
		return nil, fault
	}
	if err != nil {
		return nil, err
	}
	if err := b.settled(ctx); err != nil {
		return nil, err
	}
	took, _ := b.tracker.take()
	return took, nil
}

// restartAPIServer takes the API server away under load and gives it back. A controller that gave up meanwhile is
// started again, as a kubelet would.
func (b *bench) restartAPIServer(ctx context.Context) error {
	if err := b.begin(ctx); err != nil {
		return err
	}
	b.tracker.take()
	var away time.Duration
	var back time.Time
	ended := false
	took, err := b.through(ctx, func() error {
		began := time.Now()
		b.cluster.StopAPIServer()
		if err := b.cluster.StartAPIServer(ctx); err != nil {
			return err
		}
		back, away = time.Now(), time.Since(began)
		ended = b.running.Failure() != nil
		return b.revive(ctx)
	})
	if err != nil {
		return err
	}
	r := newReport(b.out, fmt.Sprintf("the API server restarts under load, %.0f changes a second", loadRate))
	defer r.end()
	r.row("away, s", seconds(away), "", "", "")
	r.row("back→all right and the load over, s", seconds(time.Since(back)), "", "", "")
	r.row("the controller gave up its lease and was started anew", fmt.Sprint(ended), "", "", "")
	r.latencies(took, nil, "")
	return nil
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f", d.Seconds()) }
