package report

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/health"
)

var agentOne = fettlev1alpha1.HostAgent{Version: "v1", ID: "n_1", Mode: "Service", BootID: "boot-1", StartedAt: metav1.NewTime(before)}

func wellReport(since time.Time) health.Report {
	return health.Report{
		Decided:    true,
		Conditions: []health.Condition{{Type: "b", Status: health.StatusTrue}, {Type: "a", Status: health.StatusTrue}},
		Checks: []health.CheckState{
			{Name: "x", Result: health.Result{Verdict: health.OK, Reason: "OK"}, Since: since},
			{Name: "y", Result: health.Result{Verdict: health.NotApplicable, Reason: "NotApplicable"}, Since: since},
		},
		Counts:  health.Counts{OK: 1, NotApplicable: 1},
		Summary: health.Summary{Verdict: health.OK, Since: since},
	}
}

func TestHostStatus(t *testing.T) {
	reachable := Runtime{Reachable: true, Detail: "systemd answers"}
	t.Run("a well machine", func(t *testing.T) {
		got := HostStatus(fettlev1alpha1.HostStatus{}, agentOne, reachable, wellReport(before), now)
		ready := got.Conditions[0]
		if len(got.Conditions) != 1 || ready.Type != "Ready" || ready.Status != "True" || ready.Reason != "HeartbeatReceived" || !ready.LastTransitionTime.Time.Equal(now) {
			t.Errorf("conditions are %+v", got.Conditions)
		}
		if got.Health.Status != "Healthy" || got.Health.Reason != "" || len(got.Health.Checks) != 0 || got.Health.Counts != (fettlev1alpha1.CheckCounts{OK: 1, NotApplicable: 1}) {
			t.Errorf("health is %+v", got.Health)
		}
		if fmt.Sprint(got.ConditionTypes) != "[a b]" || *got.Agent != agentOne {
			t.Errorf("types are %v, agent is %+v", got.ConditionTypes, got.Agent)
		}
	})
	t.Run("a runtime that cannot be reached", func(t *testing.T) {
		got := HostStatus(fettlev1alpha1.HostStatus{}, agentOne, Runtime{Detail: "no answer"}, wellReport(before), now).Conditions[0]
		if got.Status != "False" || got.Reason != "RuntimeUnreachable" || got.Message != "no answer" {
			t.Errorf("Ready is %+v", got)
		}
	})
	t.Run("what is said again at a later time is the same", func(t *testing.T) {
		first := HostStatus(fettlev1alpha1.HostStatus{}, agentOne, reachable, wellReport(before), now)
		again := HostStatus(stored(t, first), agentOne, reachable, wellReport(before), now.Add(time.Hour))
		if !sameStatus(stored(t, first), again) {
			t.Errorf("first %+v\nagain %+v", first, again)
		}
	})
	t.Run("a Ready that the controller set to Unknown became True now", func(t *testing.T) {
		there := HostStatus(fettlev1alpha1.HostStatus{}, agentOne, reachable, wellReport(before), before)
		there.Conditions[0].Status = "Unknown"
		got := HostStatus(there, agentOne, reachable, wellReport(before), now).Conditions[0]
		if got.Status != "True" || !got.LastTransitionTime.Time.Equal(now) {
			t.Errorf("Ready is %+v", got)
		}
	})
	t.Run("health keeps its time over a restart that came to the same", func(t *testing.T) {
		there := HostStatus(fettlev1alpha1.HostStatus{}, agentOne, reachable, wellReport(before), before)
		next := agentOne
		next.ID = "n_2"
		if got := HostStatus(there, next, reachable, wellReport(now), now).Health.Since; !got.Time.Equal(before) {
			t.Errorf("healthy since %s, want since before the restart", got)
		}
		if got := HostStatus(there, agentOne, reachable, wellReport(now), now).Health.Since; !got.Time.Equal(now) {
			t.Errorf("healthy since %s, want since it was bad for a moment in the same process", got)
		}
	})
	t.Run("worst first, in the words of the API", func(t *testing.T) {
		r := wellReport(before)
		r.Checks = append(r.Checks,
			health.CheckState{Name: "d", Result: health.Result{Verdict: health.Degraded, Reason: "SpaceLow", Message: "low"}, Since: before},
			health.CheckState{Name: "f", Result: health.Result{Verdict: health.Fatal, Reason: "Gone", Message: "gone"}, Since: before},
		)
		r.Summary = health.Summary{Verdict: health.Fatal, Reason: "Gone", Since: before}
		h := HostStatus(fettlev1alpha1.HostStatus{}, agentOne, reachable, r, now).Health
		if h.Status != "Unhealthy" || h.Reason != "Gone" || len(h.Checks) != 2 || h.Checks[0].Check != "f" || h.Checks[0].Status != "fatal" || h.Checks[1].Status != "degraded" {
			t.Errorf("health is %+v", h)
		}
	})
}

// stored is the status as it comes back from an API server.
func stored(t *testing.T, s fettlev1alpha1.HostStatus) (back fettlev1alpha1.HostStatus) {
	t.Helper()
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &back); err != nil {
		t.Fatal(err)
	}
	return back
}

func TestAHostStaysSmallHoweverMuchIsWrong(t *testing.T) {
	r := health.Report{Decided: true, Summary: health.Summary{Verdict: health.Fatal, Reason: "R", Since: before}}
	for i := range 500 {
		r.Checks = append(r.Checks, health.CheckState{
			Name:   fmt.Sprintf("check-with-a-rather-long-name-%03d", i),
			Result: health.Result{Verdict: health.Fatal, Reason: "SomethingIsVeryWrong", Message: strings.Repeat("ü", 2000)}, Since: before,
		})
	}
	for _, n := range []int{1, 10, 500} {
		part := r
		part.Checks = r.Checks[:n]
		status := HostStatus(fettlev1alpha1.HostStatus{}, agentOne, Runtime{Reachable: true}, part, now)
		body, err := hostBody("n", status)
		if err != nil {
			t.Fatal(err)
		}
		if len(body) > 15<<10 || len(status.Health.Checks) != min(n, 64) {
			t.Errorf("%d failing checks make a body of %d bytes with %d of them", n, len(body), len(status.Health.Checks))
		}
		if m := status.Health.Checks[0].Message; n == 500 && len(m) > 64 || !strings.HasSuffix(m, "…") {
			t.Errorf("message has %d bytes: %s", len(m), m)
		}
	}
}
