package agent

import (
	"cmp"
	"context"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/config/reload"
	"github.com/fettle-dev/fettle/internal/credential"
	"github.com/fettle-dev/fettle/internal/endpoints"
	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/probes/catalogue"
)

// parts are those of a running agent. They know each other by nothing but the functions that assemble gives them.
type parts struct {
	o         Options
	env       probes.Env
	endEnv    func()
	runtime   *runtimeWatch
	tokens    *credential.Renewer
	cluster   *cluster
	diagnosis *diagnosis
	kept      *memory
	notices   *notifier
	board     *endpoints.Board
	server    *endpoints.Server
	// configured rings after each look at the configuration's file.
	configured bell
}

// assemble makes the parts; run starts them, close gives up what they hold. stateDir is empty where there is none.
func assemble(o Options, host *hostfs.Root, stateDir string, self fettlev1alpha1.HostAgent) *parts {
	p := &parts{
		o:      o,
		tokens: credential.New(credential.Options{StateDir: stateDir, Node: o.NodeName, Log: o.Log}),
		board:  endpoints.NewBoard(),
	}
	p.env, p.endEnv = Surroundings(host, o.Getenv, o.Log)
	p.env.Agent = p.known()
	progress := func() uint64 { return p.diagnosis.scheduler.Progress() }
	awake := func() bool { return p.diagnosis.scheduler.Awake() }
	identified := func(node types.UID) { p.diagnosis.scheduler.Reseed(string(node)) }
	p.cluster = newCluster(clusterOptions{
		node: o.NodeName, self: self, source: sourceOf(o, host), stateDir: stateDir, heartbeat: o.Config.Heartbeat,
		tokens: p.tokens, progress: progress, identified: identified, awake: awake, log: o.Log,
	})
	p.notices = newNotifier(progress, p.cluster.status)
	p.runtime = newRuntimeWatch(o, p.env, p.cluster.setRuntime)
	kept, remembered := openMemory(stateDir, o.Log)
	p.kept = kept
	looks, checks := catalogue.Build(o.Config.Checks, p.env)
	p.board.Configured(checks)
	p.diagnosis = newDiagnosis(diagnosisParts{
		looks: looks, checks: checks, seed: o.NodeName, remembered: remembered, bootID: self.BootID, log: o.Log,
		tell: func(r health.Report) {
			p.cluster.say(r)
			p.notices.say(r)
			p.board.Say(r)
		},
		changed:  p.cluster.transition,
		lost:     p.cluster.faultLost,
		remember: kept.note,
		settle:   kept.settle,
	})
	p.diagnosis.scheduler.Looked = func(name string, took time.Duration, r health.Result) {
		p.board.Looked(name, r, time.Now(), took)
	}
	p.server = endpoints.New(endpoints.Options{
		Socket: o.Config.Endpoints.Socket, MetricsAddress: o.Config.Endpoints.MetricsAddress, StatusFile: o.Config.Endpoints.StatusFile,
		Agent: endpoints.Agent{
			Version: self.Version, ID: self.ID, Node: o.NodeName, Mode: self.Mode, PID: os.Getpid(),
			StartedAt: self.StartedAt.Time, BootID: self.BootID, PublicKey: self.PublicKey,
		},
		Board:  p.board,
		Source: seeing{awake: awake, configuration: p.configuration, cluster: p.cluster.view, credential: p.credential},
		Log:    o.Log,
	})
	return p
}

// run runs every part until the context ends.
func (p *parts) run(ctx context.Context) (err error) {
	p.cluster.started(p.kept.lost)
	endKeeping := p.kept.start()
	p.diagnosis.begin()
	var all sync.WaitGroup
	all.Go(func() { err = p.diagnosis.scheduler.Run(ctx) })
	all.Go(func() { p.cluster.run(ctx) })
	all.Go(func() { p.notices.run(ctx) })
	all.Go(func() { p.runtime.run(ctx) })
	all.Go(func() { p.server.Run(ctx) })
	if watcher := p.o.Configuration; watcher != nil {
		watcher.Looking = p.notices.reloading
		watcher.Looked = func() {
			p.notices.reloaded()
			p.board.Changed()
			p.configured.strike()
		}
		all.Go(func() { watcher.Run(ctx, p.o.Hangup, p.o.Log, p.apply) })
	}
	all.Wait()
	p.diagnosis.end()
	endKeeping()
	return err
}

// apply puts another configuration in force, as far as that can be done without a new start.
func (p *parts) apply(c config.Config) {
	if p.o.LogLevel != nil {
		_ = p.o.LogLevel.UnmarshalText([]byte(c.Log.Level)) // the configuration was found valid
	}
	p.runtime.configure(c)
	looks, checks := catalogue.Build(c.Checks, p.env)
	p.board.Configured(checks)
	p.diagnosis.reconfigure(looks, checks, nil)
	p.cluster.reconfigured(p.configuration())
}

func (p *parts) close() { p.endEnv() }

// known is what the checks of the agent itself are told.
func (p *parts) known() probes.Agent {
	known := probes.Agent{
		Heartbeat:      func() probes.Heartbeat { return p.cluster.agentHeartbeat() },
		WatchHeartbeat: func(ctx context.Context, look func()) { p.cluster.moved.each(ctx, look) },
	}
	if p.o.Configuration != nil {
		known.ConfigFault = p.o.Configuration.Fault
		known.WatchConfig = p.configured.each
	}
	return known
}

func (p *parts) configuration() reload.Status {
	if p.o.Configuration == nil {
		return reload.Status{Generation: 1}
	}
	return p.o.Configuration.Status()
}

// credential is what the API server is shown; nil while no cluster was joined.
func (p *parts) credential() *endpoints.Credential {
	s := p.tokens.Status()
	if !s.Renews && s.Why == nil {
		return nil
	}
	c := &endpoints.Credential{ExpiresAt: s.ExpiresAt, Renews: s.Renews, RenewAt: s.RenewAt, RenewedAt: s.LastRenewal, Fault: cmp.Or(s.Refused, s.Foreign, s.LastError)}
	if s.Why != nil {
		c.Detail = s.Why.Error()
	}
	return c
}

// bell wakes everybody who waits for it.
type bell struct {
	mu   sync.Mutex
	next chan struct{}
}

func (b *bell) strike() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}

// stroke ends with the next stroke.
func (b *bell) stroke() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}

// each calls heard after every stroke until the context ends. Strokes during a call of it are heard as one.
func (b *bell) each(ctx context.Context, heard func()) {
	next := b.stroke()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next:
			next = b.stroke()
			heard()
		}
	}
}
