package watch

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/fleet"
	"github.com/fettle-dev/fettle/internal/liveness"
)

// A leader that is replaced more often than agents may be silent would never find one dead, if each began to count anew. So
// the canary carries what its leader has counted of the few agents that missed a beat, and the next leader goes on from there.

// checkpointAnnotation is on the canary lease, and absent while every agent beats.
const checkpointAnnotation = "fettle.dev/silence-checkpoint"

// mostLate bounds the agents in a checkpoint, and so its size: 64 KiB at most. Those that are silent longest come first.
const mostLate = 256

// checkpoint is what one leader leaves for the next.
type checkpoint struct {
	// Verdict on the fleet as computed; and for how long a milder one has been right.
	Verdict fleet.Verdict   `json:"verdict,omitempty"`
	Calm    metav1.Duration `json:"calm,omitzero"`
	Agents  []late          `json:"agents,omitempty"`
}

// late is an agent that missed a beat and that the cluster has not been told of.
type late struct {
	Host      string `json:"host"` // UID
	RenewTime string `json:"renewTime,omitempty"`
	Holder    string `json:"holder,omitempty"`
	// Stale is for how long leaders have seen no progress.
	Stale metav1.Duration `json:"stale"`
}

func (l late) progress() liveness.Progress {
	return liveness.Progress{RenewTime: l.RenewTime, Holder: l.Holder}
}

// checkpoint gives what the next leader has to know. While the controller is blind what it counts means nothing.
func (w *Watch) checkpoint(now time.Time) checkpoint {
	var c checkpoint
	if !w.state.Computed.Acts() {
		c.Verdict, c.Calm.Duration = w.state.Computed, w.state.Calm(now).Truncate(time.Millisecond)
	}
	if w.state.Computed == fleet.Blind {
		return c
	}
	for _, a := range w.agents {
		if a.host == "" || !a.expected() || !a.late(now, w.Limits) {
			continue
		}
		c.Agents = append(c.Agents, late{
			Host: a.host, RenewTime: a.progress.RenewTime, Holder: a.progress.Holder,
			Stale: metav1.Duration{Duration: a.unchangedFor(now).Truncate(time.Millisecond)},
		})
	}
	slices.SortFunc(c.Agents, func(a, b late) int {
		return cmp.Or(cmp.Compare(b.Stale.Duration, a.Stale.Duration), cmp.Compare(a.Host, b.Host))
	})
	if len(c.Agents) > mostLate {
		c.Agents = c.Agents[:mostLate]
	}
	return c
}

// encode gives the text of the annotation; none for a checkpoint that says nothing.
func (c checkpoint) encode() (string, error) {
	if c.Verdict == "" && len(c.Agents) == 0 {
		return "", nil
	}
	encoded, err := json.Marshal(c)
	return string(encoded), err
}

// takeOver goes on where another leader left off. Without its checkpoint all timers start anew: slower, never wrong.
func (w *Watch) takeOver(ctx context.Context) {
	now := time.Now()
	left, err := w.readCheckpoint(ctx)
	if err != nil {
		w.Log.Error(err, "cannot read what the leader before this one left; all silences are timed anew")
		return
	}
	if left.Verdict != "" {
		w.state = fleet.Resume(left.Verdict, left.Calm.Duration, now)
	}
	w.resumed = make(map[string]late, len(left.Agents))
	for _, l := range left.Agents {
		w.resumed[l.Host] = l
	}
}

func (w *Watch) readCheckpoint(ctx context.Context) (checkpoint, error) {
	var c checkpoint
	lease, err := w.readLive(ctx, fettlev1alpha1.CanaryLease)
	if err != nil {
		return c, fmt.Errorf("read lease %s: %w", fettlev1alpha1.CanaryLease, err)
	}
	if lease == nil || lease.Annotations[checkpointAnnotation] == "" {
		return c, nil
	}
	if err := json.Unmarshal([]byte(lease.Annotations[checkpointAnnotation]), &c); err != nil {
		return checkpoint{}, fmt.Errorf("read annotation %s of lease %s: %w", checkpointAnnotation, fettlev1alpha1.CanaryLease, err)
	}
	return c, nil
}
