package self

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/fettle-dev/fettle/internal/config/reload"
	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
)

func look(kind probes.Kind, agent probes.Agent) health.Result {
	return kind.Build(probes.Env{Agent: agent}, kind.NewOptions()).Run(context.Background())
}

func TestConfig(t *testing.T) {
	restart := &reload.RestartNeeded{Keys: []string{"stateDir"}}
	for _, tc := range []struct {
		name    string
		fault   error
		verdict health.Verdict
		reason  string
	}{
		{name: "in force", verdict: health.OK, reason: health.ReasonOK},
		{name: "refused", fault: errors.New("checks[0].interval: 0 is too short"), verdict: health.Degraded, reason: ConfigurationInvalid},
		{name: "in force at the next start", fault: restart, verdict: health.Degraded, reason: ConfigurationNeedsRestart},
		{name: "the same, wrapped", fault: fmt.Errorf("configuration: %w", restart), verdict: health.Degraded, reason: ConfigurationNeedsRestart},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := look(Config, probes.Agent{ConfigFault: func() error { return tc.fault }})
			if got.Verdict != tc.verdict || got.Reason != tc.reason || tc.fault != nil && got.Message != tc.fault.Error() {
				t.Errorf("got %+v", got)
			}
		})
	}
	t.Run("an agent that is not told anything is well", func(t *testing.T) {
		if got := look(Config, probes.Agent{}); got.Verdict != health.OK {
			t.Errorf("got %+v", got)
		}
	})
}

func TestChecksAreLookedAtWhenWhatTheyAreToldChanges(t *testing.T) {
	changes := make(chan struct{})
	each := func(ctx context.Context, look func()) {
		for {
			select {
			case <-ctx.Done():
				return
			case <-changes:
				look()
			}
		}
	}
	for name, tc := range map[string]struct {
		kind  probes.Kind
		agent probes.Agent
	}{
		"configuration": {kind: Config, agent: probes.Agent{WatchConfig: each}},
		"heartbeat":     {kind: Heartbeat, agent: probes.Agent{WatchHeartbeat: each}},
	} {
		t.Run(name, func(t *testing.T) {
			watcher := func(agent probes.Agent) probes.Watcher {
				return tc.kind.Build(probes.Env{Agent: agent}, tc.kind.NewOptions()).(probes.Watcher)
			}
			ctx, stop := context.WithCancel(t.Context())
			looks, ended := make(chan struct{}), make(chan struct{})
			go func() { watcher(tc.agent).Watch(ctx, func() { looks <- struct{}{} }); close(ended) }()
			changes <- struct{}{}
			<-looks
			stop()
			<-ended
			watcher(probes.Agent{}).Watch(ctx, nil) // returns when there is nothing to watch
		})
	}
}

func TestHeartbeat(t *testing.T) {
	for _, tc := range []struct {
		name    string
		stands  probes.Heartbeat
		verdict health.Verdict
		reason  string
	}{
		{name: "no cluster", verdict: health.NotApplicable, reason: health.ReasonNotApplicable},
		{name: "well", stands: probes.Heartbeat{Joined: true}, verdict: health.OK, reason: health.ReasonOK},
		{name: "impaired", stands: probes.Heartbeat{Joined: true, Impaired: true, Detail: "forbidden"}, verdict: health.Fatal, reason: HeartbeatImpaired},
		{name: "in conflict", stands: probes.Heartbeat{Joined: true, Conflict: true, Impaired: true, Detail: "held by another"}, verdict: health.Fatal, reason: IdentityConflict},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := look(Heartbeat, probes.Agent{Heartbeat: func() probes.Heartbeat { return tc.stands }})
			if got.Verdict != tc.verdict || got.Reason != tc.reason || tc.stands.Detail != "" && got.Message != tc.stands.Detail {
				t.Errorf("got %+v", got)
			}
		})
	}
	t.Run("an agent that is not told anything has no cluster", func(t *testing.T) {
		if got := look(Heartbeat, probes.Agent{}); got.Verdict != health.NotApplicable {
			t.Errorf("got %+v", got)
		}
	})
}
