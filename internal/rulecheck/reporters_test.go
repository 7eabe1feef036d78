package rulecheck

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/readiness"
	"github.com/fettle-dev/fettle/internal/tolerations"
)

const key = "r.example.com/network"

type apiRule = readinessv1alpha1.NodeReadinessRule

// rule waits for conditions, selects pool=workers and holds nodes with one NoSchedule taint.
func rule(conditions ...string) *apiRule {
	r := &apiRule{Spec: readinessv1alpha1.NodeReadinessRuleSpec{
		NodeSelector: readinessv1alpha1.NodeSelector{MatchLabels: map[string]readinessv1alpha1.LabelValue{"pool": "workers"}},
		Taint:        readinessv1alpha1.TaintSpec{Key: key, Value: "pending", Effect: "NoSchedule"},
	}}
	for _, c := range conditions {
		r.Spec.Conditions = append(r.Spec.Conditions, readinessv1alpha1.ConditionRequirement{Type: c, RequiredStatus: "True"})
	}
	return r
}

func with(r *apiRule, changes ...func(*readinessv1alpha1.NodeReadinessRuleSpec)) *apiRule {
	for _, change := range changes {
		change(&r.Spec)
	}
	return r
}

// daemon is a DaemonSet of one image in the namespace monitoring.
func daemon(image string, changes ...func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "monitoring", Name: "d"}}
	ds.Spec.Template.Spec.Containers = []corev1.Container{{Name: "sidecar", Image: "envoy:v1"}, {Name: "c", Image: image}}
	for _, change := range changes {
		change(ds)
	}
	return ds
}

func declares(types string) func(*appsv1.DaemonSet) {
	return func(ds *appsv1.DaemonSet) { ds.Annotations = map[string]string{ReportsAnnotation: types} }
}

func tolerates(t ...corev1.Toleration) func(*appsv1.DaemonSet) {
	return func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.Tolerations = t }
}

func runsOn(label, value string) func(*appsv1.DaemonSet) {
	return func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.NodeSelector = map[string]string{label: value} }
}

func TestReporters(t *testing.T) {
	everything := corev1.Toleration{Operator: "Exists"}
	noExecute := func(s *readinessv1alpha1.NodeReadinessRuleSpec) { s.Taint.Effect = "NoExecute" }
	evicts := func(s *readinessv1alpha1.NodeReadinessRuleSpec) { s.Taint.Effect, s.AllowEviction = "NoExecute", true }
	requires := func(s *readinessv1alpha1.NodeReadinessRuleSpec) {
		s.Objects = []readinessv1alpha1.ObjectRequirement{{Name: "o", DaemonSet: &readinessv1alpha1.DaemonSetOnNode{Namespace: "monitoring", Name: "d"}}}
	}
	expression := func(e readinessv1alpha1.NodeSelectorRequirement) func(*readinessv1alpha1.NodeReadinessRuleSpec) {
		return func(s *readinessv1alpha1.NodeReadinessRuleSpec) {
			s.NodeSelector = readinessv1alpha1.NodeSelector{MatchExpressions: []readinessv1alpha1.NodeSelectorRequirement{e}}
		}
	}
	for _, tc := range []struct {
		name string
		rule *apiRule
		ds   *appsv1.DaemonSet
		want string // a part of the message; empty for nothing found
	}{
		{"a declared reporter that does not tolerate the taint", rule("A"), daemon("x", declares("A")),
			"DaemonSet monitoring/d reports A, and its pods do not tolerate r.example.com/network:NoSchedule"},
		{"a declared reporter that tolerates everything", rule("A"), daemon("x", declares("A"), tolerates(everything)), ""},
		{"a declared reporter that tolerates another effect", rule("A"), daemon("x", declares("A"), tolerates(corev1.Toleration{Operator: "Exists", Effect: "NoExecute"})), "do not tolerate"},
		{"a declared reporter that tolerates the taint with another value", rule("A"), daemon("x", declares("A"), tolerates(corev1.Toleration{Key: key, Value: "other"})), "do not tolerate"},
		{"a reporter of another condition", rule("A"), daemon("x", declares("B, C")), ""},
		{"one type of several, with spaces", rule("A"), daemon("x", declares("B , A")), "reports A,"},
		{"all types that begin so", rule("fettle.dev/NetworkReady"), daemon("x", declares("fettle.dev/*")), "reports fettle.dev/NetworkReady"},
		{"not those that begin otherwise", rule("example.com/NetworkReady"), daemon("x", declares("fettle.dev/*")), ""},
		{"node-problem-detector is known by its image", rule("KernelDeadlock"), daemon("registry.k8s.io/node-problem-detector/node-problem-detector:v0.8.20"), "reports KernelDeadlock"},
		{"from a mirror with a port and a digest", rule("KernelDeadlock"), daemon("registry.example.com:5000/mirror/node-problem-detector@sha256:abc"), "reports KernelDeadlock"},
		{"and what it declares counts instead", rule("KernelDeadlock"), daemon("node-problem-detector", declares("MaintenanceRequired")), ""},
		{"also when it declares nothing", rule("KernelDeadlock"), daemon("node-problem-detector", declares("")), ""},
		{"Calico's node image, not everybody's", rule("NetworkUnavailable"), daemon("docker.io/calico/node:v3.29.1"), "reports NetworkUnavailable"},
		{"an image that is only called alike", rule("NetworkUnavailable"), daemon("docker.io/library/node:22"), ""},
		{"the reporter of the node readiness controller names its type in its environment", rule("falco.org/FalcoReady"),
			daemon("registry.k8s.io/node-readiness-controller/node-readiness-reporter:v0.5.0", func(ds *appsv1.DaemonSet) {
				ds.Spec.Template.Spec.Containers[1].Env = []corev1.EnvVar{{Name: "NODE_NAME", Value: "x"}, {Name: "CONDITION_TYPE", Value: "falco.org/FalcoReady"}}
			}), "reports falco.org/FalcoReady"},
		{"a DaemonSet that the rule requires itself", with(rule(), requires), daemon("x"), "DaemonSet monitoring/d is required by the rule, and its pods do not tolerate"},
		{"a DaemonSet that the rule requires and that tolerates", with(rule(), requires), daemon("x", tolerates(everything)), ""},
		{"NoExecute that is held as NoSchedule", with(rule("A"), noExecute), daemon("x", declares("A"), tolerates(corev1.Toleration{Operator: "Exists", Effect: "NoSchedule"})), ""},
		{"NoExecute that is tolerated for a time only", with(rule("A"), evicts),
			daemon("x", declares("A"), tolerates(corev1.Toleration{Operator: "Exists", TolerationSeconds: new(int64(60))})), "its pods tolerate for 1m0s only r.example.com/network:NoExecute"},
		{"PreferNoSchedule keeps nobody away", with(rule("A"), func(s *readinessv1alpha1.NodeReadinessRuleSpec) { s.Taint.Effect = "PreferNoSchedule" }), daemon("x", declares("A")), ""},
		{"a second taint that is not tolerated", with(rule("A"), func(s *readinessv1alpha1.NodeReadinessRuleSpec) {
			s.Taints = []readinessv1alpha1.TaintSpec{{Key: "r.example.com/other", Effect: "NoSchedule"}}
		}), daemon("x", declares("A"), tolerates(corev1.Toleration{Key: key, Operator: "Exists"})), "r.example.com/other:NoSchedule"},
		{"pods that run on other nodes, by a label", rule("A"), daemon("x", declares("A"), runsOn("pool", "gpus")), ""},
		{"pods that run on such nodes", rule("A"), daemon("x", declares("A"), runsOn("pool", "workers")), "do not tolerate"},
		{"pods that may run on such nodes", rule("A"), daemon("x", declares("A"), runsOn("kubernetes.io/os", "linux")), "do not tolerate"},
		{"pods that run on other nodes, by In", with(rule("A"), expression(readinessv1alpha1.NodeSelectorRequirement{Key: "pool", Operator: "In", Values: []string{"a", "b"}})),
			daemon("x", declares("A"), runsOn("pool", "c")), ""},
		{"pods that run on other nodes, by NotIn", with(rule("A"), expression(readinessv1alpha1.NodeSelectorRequirement{Key: "pool", Operator: "NotIn", Values: []string{"c"}})),
			daemon("x", declares("A"), runsOn("pool", "c")), ""},
		{"pods that run on other nodes, by DoesNotExist", with(rule("A"), expression(readinessv1alpha1.NodeSelectorRequirement{Key: "pool", Operator: "DoesNotExist"})),
			daemon("x", declares("A"), runsOn("pool", "c")), ""},
		{"pods that run on such nodes, by Exists", with(rule("A"), expression(readinessv1alpha1.NodeSelectorRequirement{Key: "pool", Operator: "Exists"})),
			daemon("x", declares("A"), runsOn("pool", "c")), "do not tolerate"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			trimmed, err := Trim(tc.ds)
			if err != nil {
				t.Fatal(err)
			}
			r := NewReporters(tolerations.WithoutComparison, func() {})
			r.set(trimmed)
			found, ok := r.Check(tc.rule)
			if ok != (tc.want != "") || !strings.Contains(found.Message, tc.want) {
				t.Errorf("found %v: %s", ok, found.Message)
			}
			if ok && found.Reason != readiness.ReasonTaintNotTolerated {
				t.Errorf("reason %s", found.Reason)
			}
		})
	}
}

func TestComparisonIsAskedForWhereItMatters(t *testing.T) {
	severity := with(rule("A"), func(s *readinessv1alpha1.NodeReadinessRuleSpec) { s.Taint.Value = "5" })
	ds := daemon("x", declares("A"), tolerates(corev1.Toleration{Key: key, Operator: "Lt", Value: "10"}))
	for comparison, found := range map[tolerations.Comparison]bool{tolerations.WithComparison: false, tolerations.WithoutComparison: true} {
		r := NewReporters(comparison, func() {})
		r.set(ds)
		if _, ok := r.Check(severity); ok != found {
			t.Errorf("comparison %v: found %v", comparison, ok)
		}
	}
}

// TestReportersWakeOnChangeOnly tells of changes of what is asked, and not of every update of a DaemonSet's status.
func TestReportersWakeOnChangeOnly(t *testing.T) {
	changes := 0
	r := NewReporters(tolerations.WithoutComparison, func() { changes++ })
	step := func(what string, want int, do func()) {
		t.Helper()
		changes = 0
		do()
		if changes != want {
			t.Errorf("%s: told of %d changes", what, changes)
		}
	}
	ds := daemon("x", declares("A"))
	step("a new one", 1, func() { r.set(ds) })
	step("its status", 0, func() {
		again := ds.DeepCopy()
		again.ResourceVersion, again.Status.NumberReady = "2", 3
		r.set(again)
	})
	step("its tolerations", 1, func() {
		again := ds.DeepCopy()
		tolerates(corev1.Toleration{Operator: "Exists"})(again)
		r.set(again)
	})
	step("its end", 1, func() { r.forget(toolscache.DeletedFinalStateUnknown{Obj: ds}) })
	if _, ok := r.Check(rule("A")); ok {
		t.Error("found one that is gone")
	}
}

func TestManyReportersAreCounted(t *testing.T) {
	r := NewReporters(tolerations.WithoutComparison, func() {})
	for _, name := range []string{"f", "e", "d", "c", "b", "a"} {
		r.set(daemon("x", declares("A"), func(ds *appsv1.DaemonSet) { ds.Name = name }))
	}
	found, _ := r.Check(rule("A"))
	if !strings.HasPrefix(found.Message, "DaemonSet monitoring/a reports") || !strings.HasSuffix(found.Message, "; and 2 more") {
		t.Error(found.Message)
	}
}
