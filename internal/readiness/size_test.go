package readiness

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/test/controlplane"
)

// TestARuleIsUnder64KiBInTheAPIServer writes the fullest statuses, and reads what the API server made of them, with its
// record of who wrote which field.
func TestARuleIsUnder64KiBInTheAPIServer(t *testing.T) {
	cp := controlplane.ForTest(t, controlplane.Options{})
	if err := cp.Apply(t.Context(), "../../deploy/crds"); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := readinessv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	api, err := client.New(cp.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name                string
		dryRun              bool
		conditions, objects int
	}{
		{name: "one-condition", conditions: 1},
		{name: "one-condition-dry-run", conditions: 1, dryRun: true},
		{name: "some", conditions: 8, objects: 2},
		{name: "some-dry-run", conditions: 8, objects: 2, dryRun: true},
		{name: "most", conditions: 32, objects: 16},
		{name: "most-dry-run", conditions: 32, objects: 16, dryRun: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := long(tc.conditions, tc.objects)
			r.Name, r.Spec.DryRun = tc.name, tc.dryRun
			if err := api.Create(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			r.Status = fullStatus(t, r)
			if err := api.Status().Update(t.Context(), r, client.FieldOwner("fettle-controller")); err != nil {
				t.Fatal(err)
			}
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(r), r); err != nil {
				t.Fatal(err)
			}
			encoded, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if len(encoded) > 64<<10 {
				t.Errorf("%d bytes", len(encoded))
			}
			t.Logf("%d bytes", len(encoded))
			if tc.conditions < 32 && len(r.Status.NodeEvaluations) == 0 || len(r.ManagedFields) == 0 {
				t.Errorf("this is not full: %d evaluations", len(r.Status.NodeEvaluations))
			}
		})
	}
}
