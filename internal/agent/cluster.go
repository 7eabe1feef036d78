package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/credential"
	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/heartbeat"
	"github.com/fettle-dev/fettle/internal/kubeclient"
	"github.com/fettle-dev/fettle/internal/report"
)

// Bounds of a session with an API server.
const (
	// sourceEvery is how often the files behind a connection are looked at for a change.
	sourceEvery = 15 * time.Second
	// stallAfter is how long the scheduler may stand still before the Lease is not renewed. It moves every second.
	stallAfter = 10 * time.Second
)

type clusterOptions struct {
	node      string
	self      fettlev1alpha1.HostAgent
	source    kubeclient.Source
	stateDir  string // empty: none
	heartbeat config.Heartbeat
	// tokens renews our own; nil: nobody does.
	tokens   *credential.Renewer
	progress func() uint64
	// identified, if set, is told the UID of the machine's Node, again whenever that may have changed. It must not block.
	identified func(types.UID)
	// awake reports whether the scheduler of checks turns.
	awake func() bool
	log   *slog.Logger
}

// cluster is the agent's side of the API server: it finds one, keeps the Lease there and publishes. It keeps the latest
// of what there is to say for whenever it can be said.
type cluster struct {
	o      clusterOptions
	events *report.Events
	calls  clusterCalls
	// moved rings whenever the Lease may stand otherwise than the check of the heartbeat saw it.
	moved bell

	mu       sync.Mutex
	report   *health.Report
	runtime  *report.Runtime
	session  *session // nil while there is none
	alone    bool
	attempts int // sessions so far
}

// session is one stay with an API server.
type session struct {
	candidate kubeclient.Candidate
	heart     *heartbeat.Heart
	reporter  *report.Reporter
	host      atomic.Pointer[fettlev1alpha1.Host] // as last seen; nil: there is none
}

func (s *session) hostSeen(host *fettlev1alpha1.Host) {
	s.host.Store(host)
	s.reporter.HostSeen(host)
}

// lease is how the Lease stands, for the reporter.
func (s *session) lease() report.Lease {
	switch {
	case s.heart.Holds():
		return report.Held
	case s.heart.Status().Impaired:
		return report.Impaired
	default:
		return report.Lost
	}
}

func newCluster(o clusterOptions) *cluster {
	c := &cluster{o: o}
	c.events = report.NewEvents(report.EventOptions{
		Node: o.node, Instance: o.self.ID, Log: o.log, NodeUID: c.nodeUID, HostUID: c.hostUID, Settled: c.settled,
	})
	return c
}

// transition takes in that a check came from one settled verdict to another, to be told in an event. It does not block.
func (c *cluster) transition(before, after health.CheckState, condition string) {
	c.events.Transition(before, after, condition)
}

func (c *cluster) say(r health.Report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report = &r
	if c.session != nil {
		c.session.reporter.Say(r)
	}
}

func (c *cluster) setRuntime(r report.Runtime) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runtime = &r
	if c.session != nil {
		c.session.reporter.SetRuntime(r)
	}
}

// run joins the cluster, and joins it anew whenever what it joined by has changed or stopped working.
func (c *cluster) run(ctx context.Context) {
	connector := &kubeclient.Connector{
		Source: c.o.source, NodeName: c.o.node, UserAgent: c.userAgent("connect"), Log: c.o.log,
	}
	if c.o.tokens != nil {
		connector.Authenticate = c.o.tokens.Use
	}
	for ctx.Err() == nil {
		candidate, err := connector.Wait(ctx)
		if errors.Is(err, kubeclient.ErrStandalone) {
			c.o.log.Info(err.Error())
			c.mu.Lock()
			c.alone = true
			c.mu.Unlock()
			c.moved.strike()
			return
		}
		if err != nil {
			return // the context ended
		}
		c.o.log.Info("joining the cluster", "origin", candidate.Origin, "server", candidate.Config.Host)
		why, err := c.join(ctx, candidate)
		if err != nil {
			c.o.log.Error("cannot use the API server that was found", "error", err)
			why = "it cannot be used"
			pause(ctx, sourceEvery)
		}
		if ctx.Err() == nil {
			c.o.log.Info("looking for the API server again", "why", why)
		}
	}
}

// join speaks to one API server until the context ends or there is a reason to look for it anew.
func (c *cluster) join(ctx context.Context, candidate kubeclient.Candidate) (why string, err error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	h := c.o.heartbeat
	beats, err := c.client(candidate, "heartbeat", min(h.StatusTimeout, h.Interval/2), &c.calls.heartbeat)
	if err != nil {
		return "", err
	}
	defer beats.Close()
	reports, err := c.client(candidate, "report", h.StatusTimeout, &c.calls.report)
	if err != nil {
		return "", err
	}
	defer reports.Close()
	tells, err := c.client(candidate, "events", h.StatusTimeout, &c.calls.events)
	if err != nil {
		return "", err
	}
	defer tells.Close()
	s := &session{candidate: candidate}
	s.reporter = report.New(reports, report.Options{
		Node: c.o.node, Agent: c.o.self, Log: c.o.log,
		Lease:     s.lease,
		Awake:     c.o.awake,
		DoubtNode: func() { s.heart.DoubtNode() },
		Rested:    c.events.Wake,
	})
	s.heart = heartbeat.New(beats, heartbeat.Options{
		Namespace: fettlev1alpha1.LeaseNamespace, Node: c.o.node, Holder: c.o.self.ID, StateDir: c.o.stateDir,
		Interval: h.Interval, LeaseDuration: h.LeaseDuration,
		Progress: c.o.progress, StallAfter: stallAfter,
		Reapply: s.reporter.Reapply, Changed: c.heartMoved, Log: c.o.log,
	})
	watch := &report.HostWatch{API: reports, Name: c.o.node, Seen: s.hostSeen, Log: c.o.log}

	c.enter(s)
	defer c.leave()
	var parts sync.WaitGroup
	parts.Go(func() { s.heart.Run(ctx) })
	parts.Go(func() { s.reporter.Run(ctx) })
	parts.Go(func() { watch.Run(ctx) })
	parts.Go(func() { c.events.Run(ctx, tells) })
	if c.o.tokens != nil {
		parts.Go(func() { c.o.tokens.Run(ctx, tells) })
	}
	why = c.watchSource(ctx, candidate, s.heart)
	end()
	parts.Wait()
	return why, nil
}

// heartMoved takes in every change of the heartbeat's status.
func (c *cluster) heartMoved(s heartbeat.Status) {
	c.moved.strike()
	if s.NodeUID != "" && c.o.identified != nil {
		c.o.identified(s.NodeUID)
	}
	c.tellConflict(s)
}

// tellConflict tells of a conflict of identities, which nothing else tells in the cluster: an agent that is silent writes
// no conditions.
func (c *cluster) tellConflict(s heartbeat.Status) {
	if s.State == heartbeat.IdentityConflict {
		c.events.Conflict(s.Detail, time.Now())
	}
}

// watchSource waits for a reason to look for the API server anew: the files that led to it say something else now, or it
// does not answer and there is another address to try.
func (c *cluster) watchSource(ctx context.Context, candidate kubeclient.Candidate, heart *heartbeat.Heart) (why string) {
	failing := time.Time{}
	for pause(ctx, sourceEvery) {
		if c.o.source.Changed(candidate) {
			return "the files that say how to reach it have changed"
		}
		c.tellConflict(heart.Status()) // a conflict that lasts is told again and again, seldom
		if heart.Status().State != heartbeat.Failing {
			failing = time.Time{}
			continue
		}
		if failing.IsZero() {
			failing = time.Now()
		}
		if others, err := c.o.source.Candidates(); err == nil && len(others) > 1 && time.Since(failing) > c.o.heartbeat.LeaseDuration {
			return "it does not take our heartbeat, and there is another address"
		}
	}
	return "the agent ends"
}

func (c *cluster) enter(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session = s
	c.attempts++
	if c.report != nil {
		s.reporter.Say(*c.report)
	}
	if c.runtime != nil {
		s.reporter.SetRuntime(*c.runtime)
	}
}

func (c *cluster) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session = nil
	c.moved.strike()
}

// client makes a client for one purpose, with connections and a budget of its own.
func (c *cluster) client(candidate kubeclient.Candidate, purpose string, timeout time.Duration, calls *kubeclient.Calls) (*kubeclient.Client, error) {
	client, err := kubeclient.New(candidate.Config, kubeclient.Settings{
		UserAgent: c.userAgent(purpose), CallTimeout: timeout, CallsPerSecond: 5, Burst: 10, Calls: calls,
	})
	if err != nil {
		return nil, fmt.Errorf("make the client for %s: %w", purpose, err)
	}
	return client, nil
}

func (c *cluster) userAgent(purpose string) string {
	return "fettle-nodeagent/" + c.o.self.Version + " (" + purpose + ")"
}

// pause waits, and reports whether the context is still on.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
