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

// newClient gives an administrator of a cluster that knows the kinds.
func newClient(t *testing.T) client.Client {
	t.Helper()
	cp := controlplane.ForTest(t, controlplane.Options{})
	root, err := controlplane.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	if err := cp.Apply(t.Context(), root+"/deploy/crds"); err != nil {
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
	return c
}

// TestHostSchema holds Hosts against the schema of a real API server.
func TestHostSchema(t *testing.T) {
	ctx := t.Context()
	c := newClient(t)
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

// TestFleetPolicySchema holds FleetPolicies against the schema of a real API server.
func TestFleetPolicySchema(t *testing.T) {
	ctx := t.Context()
	c := newClient(t)
	until := metav1.NewTime(time.Now().Add(time.Hour).Truncate(time.Second))
	for _, tc := range []struct {
		name   string
		edit   func(*v1alpha1.FleetPolicy)
		naming string // "" is accepted
	}{
		{"nothing but the name", func(p *v1alpha1.FleetPolicy) { p.Spec.Silence = nil }, ""},
		{"another name", func(p *v1alpha1.FleetPolicy) { p.Name = "other" }, "its name is default"},
		{"a window of no time", func(p *v1alpha1.FleetPolicy) { p.Spec.Silence.Window = &metav1.Duration{} }, "window must be from 1s to 1h"},
		{"a window of days", func(p *v1alpha1.FleetPolicy) { p.Spec.Silence.Window = &metav1.Duration{Duration: 48 * time.Hour} }, "window must be from 1s to 1h"},
		{"no cooldown", func(p *v1alpha1.FleetPolicy) { p.Spec.Silence.Cooldown = &metav1.Duration{} }, ""},
		{"a negative cooldown", func(p *v1alpha1.FleetPolicy) { p.Spec.Silence.Cooldown = &metav1.Duration{Duration: -time.Second} }, "cooldown must be from 0s to 1h"},
		{"none in a window", func(p *v1alpha1.FleetPolicy) { p.Spec.Silence.MaxPerWindow = new(int32(0)) }, "maxPerWindow"},
		{"more than all in a window", func(p *v1alpha1.FleetPolicy) { p.Spec.Silence.MaxPercentPerWindow = new(int32(101)) }, "maxPercentPerWindow"},
		{"to suspend always", func(p *v1alpha1.FleetPolicy) { p.Spec.Silence.SuspendAbovePercent = new(int32(0)) }, "suspendAbovePercent"},
		{"to suspend never", func(p *v1alpha1.FleetPolicy) { p.Spec.Silence.SuspendAbovePercent = new(int32(100)) }, ""},
		{"an override", func(*v1alpha1.FleetPolicy) {}, ""},
		{"an override without a reason", func(p *v1alpha1.FleetPolicy) { p.Spec.Silence.Override.Reason = "" }, "override.reason"},
		{"an override without an end", func(p *v1alpha1.FleetPolicy) { p.Spec.Silence.Override.Until = metav1.Time{} }, "override.until"},
		{"an override that nobody can answer for", func(p *v1alpha1.FleetPolicy) { p.Spec.Silence.Override.Verdict = "Blind" }, "override.verdict"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			policy := &v1alpha1.FleetPolicy{
				ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.FleetPolicyName},
				Spec:       v1alpha1.FleetPolicySpec{Silence: &v1alpha1.SilencePolicy{Override: &v1alpha1.SilenceOverride{Verdict: "Normal", Until: until, Reason: "test"}}},
			}
			tc.edit(policy)
			err := c.Create(ctx, policy, client.DryRunAll)
			if tc.naming == "" && err != nil || tc.naming != "" && !refused(err, tc.naming) {
				t.Errorf("%v, want a refusal naming %q", err, tc.naming)
			}
		})
	}
}
