package rulecheck

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
)

// daemonSet is what matters of one here.
type daemonSet struct {
	namespace, name string
	// reports are condition types, or beginnings of them that end in *.
	reports      []string
	tolerations  []corev1.Toleration
	nodeSelector map[string]string
}

func read(ds *appsv1.DaemonSet) daemonSet {
	pod := ds.Spec.Template.Spec
	out := daemonSet{namespace: ds.Namespace, name: ds.Name, tolerations: pod.Tolerations, nodeSelector: pod.NodeSelector}
	if declared, ok := ds.Annotations[ReportsAnnotation]; ok {
		for name := range strings.SplitSeq(declared, ",") {
			if name = strings.TrimSpace(name); name != "" {
				out.reports = append(out.reports, name)
			}
		}
		return out
	}
	for _, c := range pod.Containers {
		out.reports = append(out.reports, reportedBy(c)...)
	}
	return out
}

func (d daemonSet) String() string { return "DaemonSet " + d.namespace + "/" + d.name }

// reporting gives those of a rule's condition types that the pods report.
func (d daemonSet) reporting(rule *readinessv1alpha1.NodeReadinessRule) []string {
	var types []string
	for _, required := range rule.Spec.Conditions {
		if slices.ContainsFunc(d.reports, func(name string) bool { return matches(name, required.Type) }) {
			types = append(types, required.Type)
		}
	}
	return types
}

// requiredBy reports whether a rule waits for the pods themselves.
func (d daemonSet) requiredBy(rule *readinessv1alpha1.NodeReadinessRule) bool {
	return slices.ContainsFunc(rule.Spec.Objects, func(o readinessv1alpha1.ObjectRequirement) bool {
		return o.DaemonSet != nil && o.DaemonSet.Namespace == d.namespace && o.DaemonSet.Name == d.name
	})
}

// elsewhere reports whether the pods run on no node that the selector selects, as far as the labels prove it.
func (d daemonSet) elsewhere(selector readinessv1alpha1.NodeSelector) bool {
	for key, value := range d.nodeSelector {
		if wanted, named := selector.MatchLabels[key]; named && string(wanted) != value {
			return true
		}
		for _, e := range selector.MatchExpressions {
			if e.Key != key {
				continue
			}
			listed := slices.Contains(e.Values, value)
			if e.Operator == metav1.LabelSelectorOpIn && !listed || e.Operator == metav1.LabelSelectorOpNotIn && listed ||
				e.Operator == metav1.LabelSelectorOpDoesNotExist {
				return true
			}
		}
	}
	return false
}

// Trim keeps of a DaemonSet what is read here. It is a transform of the controller's cache.
func Trim(obj any) (any, error) {
	ds, ok := obj.(*appsv1.DaemonSet)
	if !ok {
		return obj, nil
	}
	trimmed := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: ds.Namespace, Name: ds.Name, UID: ds.UID, ResourceVersion: ds.ResourceVersion,
	}}
	if declared, ok := ds.Annotations[ReportsAnnotation]; ok {
		trimmed.Annotations = map[string]string{ReportsAnnotation: declared}
	}
	pod := &trimmed.Spec.Template.Spec
	pod.Tolerations, pod.NodeSelector = ds.Spec.Template.Spec.Tolerations, ds.Spec.Template.Spec.NodeSelector
	for _, c := range ds.Spec.Template.Spec.Containers {
		kept := corev1.Container{Image: c.Image}
		for _, variable := range c.Env {
			if slices.ContainsFunc(knownReporters, func(k knownReporter) bool { return k.env == variable.Name }) {
				kept.Env = append(kept.Env, variable)
			}
		}
		pod.Containers = append(pod.Containers, kept)
	}
	return trimmed, nil
}
