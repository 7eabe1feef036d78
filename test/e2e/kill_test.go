package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/test/e2e/stack"
)

// kills is the number of rounds: FETTLE_KILLS, default 50.
func kills(t *testing.T) int {
	text := os.Getenv("FETTLE_KILLS")
	if text == "" {
		return 50
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("FETTLE_KILLS=%q: want a number of rounds", text)
	}
	return n
}

// TestKillAtAnyMoment breaks or repairs a machine and kills the agent, the controller or both at a random moment around
// it. Once they are back, conditions and taints must be those of the machine as it is.
func TestKillAtAnyMoment(t *testing.T) {
	ctx := t.Context()
	s := stack.ForTest(t, stack.Options{
		Nodes: []string{"one", "two"},
		// A killed leader's lease would have to run out at every round; TestKilledLeaderIsSucceeded is about that.
		ControllerArgs: []string{"--leader-elect=false"},
	})
	must(t, s.ControlPlane.Apply(ctx, s.Path("deploy/examples")))
	right := func(broken bool) func(context.Context) error {
		status, reason := corev1.ConditionTrue, "OK"
		if broken {
			status, reason = corev1.ConditionFalse, "CNIConfigInvalid"
		}
		return stack.All(
			s.Says("one", fettlev1alpha1.ConditionNetworkReady, status, reason),
			s.Says("one", fettlev1alpha1.ConditionHealthy, status, reason),
			s.Says("one", fettlev1alpha1.ConditionStorageReady, corev1.ConditionTrue, "OK"),
			s.Tainted("one", networkTaint, broken),
			s.Tainted("one", storageTaint, false),
			s.HostReady("one", metav1.ConditionTrue, fettlev1alpha1.ReasonHeartbeatReceived),
			s.Says("two", fettlev1alpha1.ConditionNetworkReady, corev1.ConditionTrue, "OK"),
			s.Tainted("two", networkTaint, false),
		)
	}
	must(t, stack.Await(ctx, "all to be well", right(false)))

	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	one, broken := s.Node("one"), false
	for round := range kills(t) {
		who := []string{"agent", "controller", "both"}[random.IntN(3)]
		wait := time.Duration(random.Int64N(int64(2500 * time.Millisecond)))
		if broken = !broken; broken {
			must(t, one.BreakCNI(ctx))
		} else {
			must(t, one.RepairCNI(ctx))
		}
		time.Sleep(wait) // the moment is the thing varied
		if who != "controller" {
			must(t, one.KillAgent(ctx))
		}
		if who != "agent" {
			s.KillController()
			must(t, s.StartController())
		}
		what := fmt.Sprintf("round %d: %s killed %s after broken=%t", round, who, wait, broken)
		if err := stack.Await(ctx, what, right(broken)); err != nil {
			t.Fatal(err)
		}
		if err := stack.Holds(ctx, 500*time.Millisecond, right(broken)); err != nil {
			t.Fatalf("%s: right once, then not: %v", what, err)
		}
	}
}

// TestKilledLeaderIsSucceeded : a controller killed while it leads is succeeded once its lease ran out.
func TestKilledLeaderIsSucceeded(t *testing.T) {
	ctx := t.Context()
	s := stack.ForTest(t, stack.Options{Nodes: []string{"one"}})
	must(t, s.ControlPlane.Apply(ctx, s.Path("deploy/examples")))
	must(t, stack.Await(ctx, "one to be well", s.Says("one", fettlev1alpha1.ConditionNetworkReady, corev1.ConditionTrue, "OK")))
	must(t, stack.Await(ctx, "one to be released", s.Tainted("one", networkTaint, false)))
	s.KillController()
	must(t, s.Node("one").BreakCNI(ctx))
	must(t, stack.Await(ctx, "the condition", s.Says("one", fettlev1alpha1.ConditionNetworkReady, corev1.ConditionFalse, "CNIConfigInvalid")))
	must(t, s.Tainted("one", networkTaint, false)(ctx)) // nobody is there to taint
	must(t, s.StartController())
	must(t, stack.Await(ctx, "the taint", s.Tainted("one", networkTaint, true)))
}
