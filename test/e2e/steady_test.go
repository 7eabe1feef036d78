package e2e

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/test/controlplane"
	"github.com/fettle-dev/fettle/test/e2e/stack"
)

// TestSteadyStateWritesLeasesOnly counts what agents and controller ask of the API server while nothing happens.
func TestSteadyStateWritesLeasesOnly(t *testing.T) {
	const watched = time.Minute
	ctx := t.Context()
	nodes := []string{"one", "two", "three"}
	s := stack.ForTest(t, stack.Options{Nodes: nodes, Audit: true})
	must(t, s.ControlPlane.Apply(ctx, s.Path("deploy/examples")))
	for _, n := range nodes {
		must(t, stack.Await(ctx, n+" to be well", stack.All(
			s.Says(n, fettlev1alpha1.ConditionHealthy, corev1.ConditionTrue, "OK"),
			s.HostReady(n, metav1.ConditionTrue, fettlev1alpha1.ReasonHeartbeatReceived),
		)))
	}
	awaitQuiet(t, s, 15*time.Second)

	mark, err := s.ControlPlane.Mark()
	must(t, err)
	select {
	case <-time.After(watched): // the time is the thing measured
	case <-ctx.Done():
	}
	requests, err := s.ControlPlane.RequestsSince(mark)
	must(t, err)
	ours := requests.Where(isOurs)
	t.Logf("in %s, %d machines, agents and controller:\n%s", watched, len(nodes), ours)

	for what, n := range ours.Writes().Counts() {
		if !strings.Contains(what, "leases") {
			t.Errorf("%d × %s; a quiet fleet writes leases only", n, what)
		}
	}
	beats := map[string]int{}
	for _, r := range ours.Writes() {
		if r.Namespace == fettlev1alpha1.LeaseNamespace && r.Name != fettlev1alpha1.CanaryLease {
			beats[r.Name]++
		}
	}
	if got := slices.Sorted(maps.Keys(beats)); !slices.Equal(got, slices.Sorted(slices.Values(nodes))) {
		t.Errorf("leases renewed: %v, want those of %v", got, nodes)
	}
	for node, n := range beats {
		if n < 4 || n > 7 {
			t.Errorf("lease of %s was renewed %d times in %s, want one each 10 s", node, n, watched)
		}
	}
}

func isOurs(r controlplane.Request) bool {
	return strings.HasPrefix(r.User, "system:serviceaccount:fettle-system:")
}

// awaitQuiet waits until agents and controller have written nothing but leases for a while.
func awaitQuiet(t *testing.T, s *stack.Stack, quiet time.Duration) {
	t.Helper()
	ctx := t.Context()
	for range 20 {
		mark, err := s.ControlPlane.Mark()
		must(t, err)
		select {
		case <-time.After(quiet):
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		}
		requests, err := s.ControlPlane.RequestsSince(mark)
		must(t, err)
		noisy := requests.Where(isOurs).Writes().Where(func(r controlplane.Request) bool { return r.Resource != "leases" })
		if len(noisy) == 0 {
			return
		}
	}
	t.Fatal("agents and controller keep writing")
}
