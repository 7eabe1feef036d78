package v1alpha1_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/test/controlplane"
)

// TestHostSchema holds Hosts against the schema of a real API server.
func TestHostSchema(t *testing.T) {
	ctx := t.Context()
	cp := controlplane.ForTest(t, controlplane.Options{})
	root, err := controlplane.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	if err := cp.Apply(ctx, root+"/deploy/crds"); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cp.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	host := &v1alpha1.Host{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Spec: v1alpha1.HostSpec{NodeUID: "a"}}
	if err := c.Create(ctx, host); err != nil {
		t.Fatal(err)
	}

	if err := c.Create(ctx, &v1alpha1.Host{ObjectMeta: metav1.ObjectMeta{Name: "two"}}); !refused(err, "nodeUID must not be empty") {
		t.Errorf("a Host of no Node: %v", err)
	}
	moved := host.DeepCopy()
	moved.Spec.NodeUID = "b"
	if err := c.Update(ctx, moved); !refused(err, "nodeUID is immutable") {
		t.Errorf("a Host that moves to another Node: %v", err)
	}
	for _, tc := range []struct {
		name   string
		edit   func(*v1alpha1.HostStatus)
		naming string // "" is accepted
	}{
		{"condition types with a prefix", func(s *v1alpha1.HostStatus) { s.ConditionTypes = []string{"fettle.dev/Healthy", "example.com/GPU"} }, ""},
		{"a condition type of Kubernetes", func(s *v1alpha1.HostStatus) { s.ConditionTypes = []string{"Ready"} }, "conditionTypes[0]"},
		{"a mode that does not exist", func(s *v1alpha1.HostStatus) { s.Agent.Mode = "Pod" }, "agent.mode"},
		{"a public key", func(s *v1alpha1.HostStatus) { s.Agent.PublicKey = "hpke-x25519:" + strings.Repeat("A", 43) + "=" }, ""},
		{"a public key of no known form", func(s *v1alpha1.HostStatus) { s.Agent.PublicKey = "-----BEGIN PUBLIC KEY-----" }, "agent.publicKey"},
		{"a verdict that checks here cannot have", func(s *v1alpha1.HostStatus) { s.Health.Checks[0].Status = "ok" }, "checks[0].status"},
		{"a message that is too long", func(s *v1alpha1.HostStatus) { s.Health.Checks[0].Message = strings.Repeat("x", 1025) }, "checks[0].message"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			next := host.DeepCopy()
			now := metav1.NewTime(time.Now().Truncate(time.Second))
			next.Status = v1alpha1.HostStatus{
				Agent:  &v1alpha1.HostAgent{Version: "v", ID: "i", Mode: "Service", BootID: "b", StartedAt: now},
				Health: &v1alpha1.HostHealth{Status: "Degraded", Since: now, Checks: []v1alpha1.HostCheck{{Check: "c", Status: "degraded", Reason: "R", Since: now}}},
			}
			tc.edit(&next.Status)
			err := c.Status().Patch(ctx, next, client.MergeFrom(host))
			if tc.naming == "" && err != nil || tc.naming != "" && !refused(err, tc.naming) {
				t.Errorf("%v, want a refusal naming %q", err, tc.naming)
			}
		})
	}
}

func refused(err error, naming string) bool {
	return err != nil && strings.Contains(err.Error(), naming)
}
