package readiness

import (
	"strings"
	"testing"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
)

func TestChecks(t *testing.T) {
	sharing := func(name, value, condition string) *apiRule {
		r := ruleNamed(name, condition)
		r.Spec.Taint.Key, r.Spec.Taint.Value = "r.example.com/shared", value
		return r
	}
	in := func(r *apiRule, pool readinessv1alpha1.LabelValue) *apiRule {
		r.Spec.NodeSelector.MatchLabels["pool"] = pool
		return r
	}
	evicting := func(r *apiRule, acknowledged bool) *apiRule {
		r.Spec.Taints = []readinessv1alpha1.TaintSpec{{Key: "r.example.com/out", Effect: "NoExecute"}}
		r.Spec.AllowEviction = acknowledged
		return r
	}
	dry := func(r *apiRule) *apiRule {
		r.Spec.DryRun = true
		return r
	}
	for _, tc := range []struct {
		name  string
		rules []*apiRule
		// about is the index of the rule that is looked at.
		about int
		// want are the reasons, and says is in one of the messages.
		want, says string
	}{
		{name: "a rule alone", rules: []*apiRule{ruleNamed("a", "A")}},
		{name: "a taint that two rules hold for different conditions, the first", rules: []*apiRule{sharing("a", "", "A"), sharing("b", "", "B")},
			want: ReasonTaintShared, says: "with rule b about when r.example.com/shared:NoSchedule is held"},
		{name: "a taint that two rules hold for different conditions, the second", rules: []*apiRule{sharing("a", "", "A"), sharing("b", "", "B")}, about: 1,
			want: ReasonTaintShared, says: "with rule a about when"},
		{name: "two values of one taint, the winner named", rules: []*apiRule{sharing("b", "y", "A"), sharing("a", "x", "A")},
			want: ReasonTaintShared, says: "it is that of rule a"},
		{name: "one taint on nodes that no two rules select", rules: []*apiRule{sharing("a", "", "A"), in(sharing("b", "", "B"), "b")}},
		{name: "a rule that is tried out beside the one it is to replace", rules: []*apiRule{sharing("a", "", "A"), dry(sharing("b", "", "B"))}},
		{name: "a third rule", rules: []*apiRule{sharing("a", "", "A"), sharing("b", "", "B"), ruleNamed("c", "A")}, about: 2},
		{name: "eviction that is not acknowledged", rules: []*apiRule{evicting(ruleNamed("a", "A"), false)}, want: ReasonEvictionWithheld, says: "r.example.com/out"},
		{name: "eviction that is", rules: []*apiRule{evicting(ruleNamed("a", "A"), true)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCluster(t, tc.rules...)
			c.set()
			status := &Status{Checks: []Check{func(*apiRule) (Finding, bool) { return Finding{}, false }}}
			var reasons, messages []string
			for _, f := range status.findings(tc.rules[tc.about], c.compiled.current.Load()) {
				reasons, messages = append(reasons, f.Reason), append(messages, f.Message)
			}
			if got := strings.Join(reasons, " "); got != tc.want || !strings.Contains(strings.Join(messages, "\n"), tc.says) {
				t.Errorf("found %q: %q", got, messages)
			}
		})
	}
}
