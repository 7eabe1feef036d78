package agent

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/endpoints"
	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/kubeclient"
	"github.com/fettle-dev/fettle/internal/probes/catalogue"
	"github.com/fettle-dev/fettle/test/await"
)

// TestNothingLeaksFromTheWholeAgent runs agents with commands that fork, flood and hang, with the prober and with people who
// ask, for thousands of looks, and starts and ends them again and again.
func TestNothingLeaksFromTheWholeAgent(t *testing.T) {
	const agents, looksEach, askers = 10, 300, 4
	c, err := config.Parse("test.yaml", []byte(`checks:
- {name: ends, kind: exec, command: [/bin/true]}
- {name: forks, kind: exec, command: [/bin/sh, -c, "sleep 1009 & setsid -f sleep 1009; exit 1"]}
- {name: floods, kind: exec, command: [/usr/bin/yes]}
- {name: hangs, kind: exec, command: [/bin/sleep, "1009"]}
- {name: missing, kind: exec, command: [/does/not/exist]}
- {name: a-mount, kind: mount, path: /, writeCheck: false}
`), catalogue.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.Checks {
		c.Checks[i].Settings.Interval, c.Checks[i].Settings.Timeout = 20*time.Millisecond, 10*time.Millisecond
		if c.Checks[i].Settings.Name == "floods" {
			c.Checks[i].Settings.Timeout = time.Minute
		}
	}
	folder := t.TempDir()
	c.StateDir, c.HostRoot = filepath.Join(folder, "state"), "/"
	c.Endpoints = config.Endpoints{Socket: filepath.Join(folder, "agent.sock"), StatusFile: filepath.Join(folder, "status.json")}
	var answers atomic.Int64
	life := func() {
		ctx, end := context.WithCancel(t.Context())
		defer end()
		var all sync.WaitGroup
		all.Go(func() {
			if err := Run(ctx, Options{Config: c, NodeName: "n", Version: "v", Getenv: func(string) string { return "" }, Log: slog.New(slog.DiscardHandler)}); err != nil {
				t.Error(err)
			}
		})
		defer all.Wait()
		defer end()
		for range askers {
			all.Go(func() {
				for ctx.Err() == nil {
					asked, cancel := context.WithTimeout(ctx, time.Minute)
					_, statusErr := endpoints.Ask(asked, c.Endpoints.Socket)
					_, metricsErr := endpoints.Get(asked, c.Endpoints.Socket, "/metrics")
					cancel()
					if statusErr == nil && metricsErr == nil {
						answers.Add(2)
					}
					pause(ctx, 5*time.Millisecond)
				}
			})
		}
		enough := answers.Load() + looksEach
		await.That(t, "the agent is asked often enough, while it looks", func() bool { return answers.Load() > enough })
	}
	for range 3 { // what the runtime and the libraries keep for good
		life()
	}
	before := held(t)
	for range agents {
		life()
	}
	t.Logf("%d answers", answers.Load())
	awaitNoMore(t, before)
}

// TestNothingLeaksFromSessions joins a real API server and leaves it again and again, in the middle of whatever it does.
func TestNothingLeaksFromSessions(t *testing.T) {
	const sessions = 300
	r := newRig(t)
	r.createHost(t, "n", r.createNode(t, "n").UID)
	source := kubeclient.Source{Kubeconfig: r.agentKubeconfig}
	candidates, err := source.Candidates()
	if err != nil {
		t.Fatal(err)
	}
	var progress atomic.Uint64
	c := newCluster(clusterOptions{
		node: "n", source: source, stateDir: t.TempDir(), heartbeat: beats,
		progress: func() uint64 { return progress.Add(1) }, log: slog.New(slog.DiscardHandler),
	})
	c.o.self.ID = "n_leaks"
	c.say(finding(""))
	stay := func(i int) {
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		left := make(chan struct{})
		go func() {
			defer close(left)
			if _, err := c.join(ctx, candidates[0]); err != nil {
				t.Error(err)
			}
		}()
		c.transition(health.CheckState{}, health.CheckState{}, fmt.Sprint("fettle.dev/C", i))
		if i%3 > 0 { // each third leaves before it has come in
			await.That(t, "the lease is held", func() bool { return c.view().Holds })
		}
		leave()
		<-left
	}
	for i := range 20 {
		stay(i)
	}
	before := held(t)
	for i := range sessions {
		stay(i)
	}
	awaitNoMore(t, before)
}
