package nodewright

import (
	"fmt"
	"maps"
	"slices"

	"github.com/Masterminds/semver/v3"

	"github.com/fettle-dev/fettle/api/nodewright/v1alpha1"
)

// Warnings tells what is allowed and hardly ever meant.
func Warnings(nw *v1alpha1.NodeWright) []string {
	var all []string
	spec := nw.Spec
	if len(spec.NodeSelectors.MatchLabels)+len(spec.NodeSelectors.MatchExpressions) == 0 {
		all = append(all, "spec.nodeSelectors is empty: every node of the cluster is selected")
	}
	if spec.AutoTaintNewNodes && !spec.RuntimeRequired {
		all = append(all, "spec.autoTaintNewNodes has no effect without runtimeRequired")
	}
	interrupts := false
	for _, name := range slices.Sorted(maps.Keys(spec.Packages)) {
		p := spec.Packages[name]
		at := "spec.packages[" + name + "]"
		if _, err := semver.StrictNewVersion(p.Version); err != nil {
			all = append(all, fmt.Sprintf("%s.version %q is no strict semantic version", at, p.Version))
		}
		if p.AgentImageOverride != "" {
			all = append(all, at+".agentImageOverride has no effect here but that changing it lets a failed stage run again")
		}
		disruptions := slices.Collect(maps.Values(p.ConfigInterrupts))
		if p.Interrupt != nil {
			disruptions = append(disruptions, *p.Interrupt)
		}
		for _, d := range disruptions {
			interrupts = true
			if d.Type == v1alpha1.InterruptReboot && p.StageTimeout != nil && p.StageTimeout.Duration == 0 {
				all = append(all, at+".stageTimeout is 0: a reboot that does not happen is given up only after 2h")
			}
			if d.Type == v1alpha1.InterruptService && len(d.Services) == 0 {
				all = append(all, at+" restarts no service, since none is named")
			}
		}
	}
	if interrupts && spec.InterruptionBudget == nil && spec.DeploymentPolicy == "" {
		all = append(all, "spec has neither interruptionBudget nor deploymentPolicy: all selected nodes are interrupted at once")
	}
	return all
}
