package readiness

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

// TestKstatus gives what GitOps tools and `kubectl apply --wait` of others make of a rule.
func TestKstatus(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*apiRule)
		// undecided leaves a node that nobody has looked at.
		undecided, fails bool
		// edited is true when the status is about the generation before.
		edited bool
		want   status.Status
	}{
		{name: "a rule that is enforced", want: status.CurrentStatus},
		{name: "a dry run", change: func(r *apiRule) { r.Spec.DryRun = true }, want: status.CurrentStatus},
		{name: "a suspended rule", change: func(r *apiRule) { r.Spec.Suspend = true }, want: status.CurrentStatus},
		{name: "a rule that has not reached every node", undecided: true, want: status.InProgressStatus},
		{name: "a rule whose writes fail", fails: true, want: status.InProgressStatus},
		{name: "a rule that was edited just now", edited: true, want: status.InProgressStatus},
		{name: "a rule that cannot be applied", change: unparsable, want: status.FailedStatus},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := ruleOf("A")
			if tc.change != nil {
				tc.change(r)
			}
			c := newCluster(t, r)
			var fault error
			if tc.fails {
				fault = errors.New("no")
			}
			c.decide(fault, nodeNamed("a", "False"))
			if tc.undecided {
				c.nodes["b"] = nodeNamed("b", "True")
			}
			r.Status = c.status(r)
			if tc.edited {
				r.Generation++
			}
			fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(r)
			if err != nil {
				t.Fatal(err)
			}
			got, err := status.Compute(&unstructured.Unstructured{Object: fields})
			if err != nil || got.Status != tc.want {
				t.Errorf("%v, %v, want %s", got, err, tc.want)
			}
		})
	}
}
