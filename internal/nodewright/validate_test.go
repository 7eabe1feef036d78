package nodewright_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fettle-dev/fettle/api/nodewright/v1alpha1"
	"github.com/fettle-dev/fettle/internal/nodewright"
)

type (
	object = v1alpha1.NodeWright
	pkg    = v1alpha1.Package
)

func valid() *object {
	return &object{Spec: v1alpha1.NodeWrightSpec{
		NodeSelectors: metav1.LabelSelector{MatchLabels: map[string]string{"gpu": "true"}},
		Packages: map[string]pkg{
			"tuning": {Version: "1.2.3", Image: "localhost:5000/org/tuning", ConfigMap: map[string]string{"tuning.conf": "x"}},
			"driver": {Version: "2.0.0", Image: "ghcr.io/org/driver", DependsOn: map[string]v1alpha1.PackageVersion{"tuning": "1.2.3"}},
		},
	}}
}

// of changes the package tuning.
func of(change func(*pkg)) func(*object) {
	return func(nw *object) {
		p := nw.Spec.Packages["tuning"]
		change(&p)
		nw.Spec.Packages["tuning"] = p
	}
}

func quantity(text string) *resource.Quantity  { return new(resource.MustParse(text)) }
func lasting(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

func TestValidate(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*object)
		says   []string // none: it is valid
	}{
		{name: "as it is", change: func(*object) {}},
		{name: "empty", change: func(nw *object) { nw.Spec = v1alpha1.NodeWrightSpec{} }},
		{name: "a selector that cannot be parsed", change: func(nw *object) {
			nw.Spec.NodeSelectors.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}
		}, says: []string{"spec.nodeSelectors"}},
		{name: "protected pods that cannot be parsed", change: func(nw *object) {
			nw.Spec.PodNonInterruptLabels.MatchLabels = map[string]string{"a b": "c"}
		}, says: []string{"spec.podNonInterruptLabels"}},
		{name: "a budget and a policy", change: func(nw *object) {
			nw.Spec.InterruptionBudget, nw.Spec.DeploymentPolicy = &v1alpha1.InterruptionBudget{Count: new(int32(1))}, "x"
		}, says: []string{"excludes deploymentPolicy"}},
		{name: "two budgets", change: func(nw *object) {
			nw.Spec.InterruptionBudget = &v1alpha1.InterruptionBudget{Count: new(int32(-1)), Percent: new(int32(101))}
		}, says: []string{"not both", "percent: Invalid value: 101", "count: Invalid value: -1"}},
		{name: "a negative priority", change: func(nw *object) { nw.Spec.Priority = -1 }, says: []string{"spec.priority"}},
		{name: "an unknown sequencing", change: func(nw *object) { nw.Spec.Sequencing = "some" }, says: []string{`supported values: "node", "all"`}},
		{name: "negative times of drains", change: func(nw *object) {
			nw.Spec.DrainConfig = &v1alpha1.DrainConfig{Timeout: lasting(-1), GracePeriod: lasting(-1)}
		}, says: []string{"drainConfig.timeout", "drainConfig.gracePeriod"}},
		{name: "a name with capitals", change: func(nw *object) { nw.Spec.Packages["Tuning"] = pkg{Version: "1.0.0", Image: "x"} }, says: []string{"spec.packages[Tuning]: Invalid value"}},
		{name: "a name of one letter", change: func(nw *object) { nw.Spec.Packages["a"] = pkg{Version: "1.0.0", Image: "x"} }, says: []string{"spec.packages[a]"}},
		{name: "a name of 43 letters", change: func(nw *object) { nw.Spec.Packages[strings.Repeat("a", 43)] = pkg{Version: "1.0.0", Image: "x"} }},
		{name: "a name of 44 letters", change: func(nw *object) { nw.Spec.Packages[strings.Repeat("a", 44)] = pkg{Version: "1.0.0", Image: "x"} }, says: []string{"must match"}},
		{name: "a name inside", change: of(func(p *pkg) { p.Name = "tuning" }), says: []string{"spec.packages[tuning].name: Forbidden"}},
		{name: "no version, no image", change: of(func(p *pkg) { p.Version, p.Image = "", "" }), says: []string{"version: Required", "image: Required"}},
		{name: "a loose version", change: of(func(p *pkg) { p.Version = "1.2" })},
		{name: "a version that is none", change: of(func(p *pkg) { p.Version = "latest" }), says: []string{"must be a semantic version"}},
		{name: "an image with a tag", change: of(func(p *pkg) { p.Image = "localhost:5000/x:1" }), says: []string{"must not have a tag"}},
		{name: "an image with a digest", change: of(func(p *pkg) { p.Image = "x@sha256:0" }), says: []string{"must not have a digest"}},
		{name: "an image with a space", change: of(func(p *pkg) { p.Image = "x y" }), says: []string{"must not hold spaces"}},
		{name: "a short digest", change: of(func(p *pkg) { p.ContainerSHA = "sha256:00" }), says: []string{"64 lower-case"}},
		{name: "an unknown interrupt", change: of(func(p *pkg) { p.Interrupt = &v1alpha1.Interrupt{Type: "kexec"} }), says: []string{"interrupt.type: Unsupported value"}},
		{name: "a dependency that is not there", change: of(func(p *pkg) { p.DependsOn = map[string]v1alpha1.PackageVersion{"other": ""} }), says: []string{"dependsOn[other]: Required", "dependsOn[other]: Not found"}},
		{name: "a cycle", change: of(func(p *pkg) { p.DependsOn = map[string]v1alpha1.PackageVersion{"driver": "2.0.0"} }), says: []string{"driver → tuning → driver"}},
		{name: "a key that is a path", change: of(func(p *pkg) { p.ConfigMap = map[string]string{"a/b": "x"} }), says: []string{"configMap[a/b]"}},
		{name: "a binary value", change: of(func(p *pkg) { p.ConfigMap = map[string]string{"a": "\xff"} }), says: []string{"must be valid UTF-8"}},
		{name: "a pattern that matches", change: of(func(p *pkg) { p.ConfigInterrupts = map[string]v1alpha1.Interrupt{"*.conf": {Type: "noop"}} })},
		{name: "a pattern that matches nothing", change: of(func(p *pkg) { p.ConfigInterrupts = map[string]v1alpha1.Interrupt{"*.cfg": {Type: "noop"}} }), says: []string{"configInterrupts[*.cfg]: Invalid value", "matches no key"}},
		{name: "some resources", change: of(func(p *pkg) { p.Resources = &v1alpha1.PackageResources{CPULimit: quantity("1")} }), says: []string{"cpuRequest: Required", "memoryLimit: Required"}},
		{name: "limits below requests", change: of(func(p *pkg) {
			p.Resources = &v1alpha1.PackageResources{CPURequest: quantity("2"), CPULimit: quantity("1500m"), MemoryRequest: quantity("1Gi"), MemoryLimit: quantity("0")}
		}), says: []string{"cpuLimit: Invalid value: \"1500m\": must not be less than cpuRequest", "memoryLimit: Invalid value: \"0\": must be more than 0"}},
		{name: "negative times", change: of(func(p *pkg) { p.GracefulShutdown, p.StageTimeout = lasting(-1), lasting(-1) }), says: []string{"gracefulShutdown", "stageTimeout"}},
		{name: "an uninstall that is not enabled", change: of(func(p *pkg) { p.Uninstall = &v1alpha1.Uninstall{Apply: true} }), says: []string{"uninstall.apply: Invalid value: true: needs enabled"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			nw := valid()
			tc.change(nw)
			faults := nodewright.Validate(nw)
			if (len(faults) == 0) != (len(tc.says) == 0) {
				t.Errorf("%v", faults)
			}
			for _, want := range tc.says {
				if !strings.Contains(faults.ToAggregate().Error(), want) {
					t.Errorf("lacks %q: %v", want, faults.ToAggregate())
				}
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*object)
		says   string
	}{
		{name: "as it is", change: func(*object) {}},
		{name: "every node", change: func(nw *object) { nw.Spec.NodeSelectors = metav1.LabelSelector{} }, says: "every node of the cluster"},
		{name: "all at once", change: of(func(p *pkg) { p.Interrupt = &v1alpha1.Interrupt{Type: "noop"} }), says: "all selected nodes are interrupted at once"},
		{name: "a reboot without an end", change: of(func(p *pkg) {
			p.ConfigInterrupts, p.StageTimeout = map[string]v1alpha1.Interrupt{"*": {Type: "reboot"}}, lasting(0)
		}), says: "spec.packages[tuning].stageTimeout is 0"},
		{name: "a restart of nothing", change: of(func(p *pkg) { p.Interrupt = &v1alpha1.Interrupt{Type: "service"} }), says: "none is named"},
		{name: "a loose version", change: of(func(p *pkg) { p.Version = "1.2" }), says: `"1.2" is no strict semantic version`},
		{name: "an agent image", change: of(func(p *pkg) { p.AgentImageOverride = "x:1" }), says: "agentImageOverride has no effect"},
		{name: "a taint without a reason", change: func(nw *object) { nw.Spec.AutoTaintNewNodes = true }, says: "without runtimeRequired"},
	} {
		nw := valid()
		tc.change(nw)
		got := strings.Join(nodewright.Warnings(nw), "; ")
		if (got == "") != (tc.says == "") || !strings.Contains(got, tc.says) {
			t.Errorf("%s: %q", tc.name, got)
		}
	}
}
