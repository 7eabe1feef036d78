package objectstatus

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kstatus "sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

// Gate is the analyzer of decisions that must not be taken too early. What another analyzer calls current has to stand
// up to every doubt of a table besides; nothing becomes ready that was not.
type Gate struct {
	Analyzer Analyzer
	// StatusSubresource says that the API server has one for the object's kind: then an object without any status is one
	// that nobody has looked at yet.
	StatusSubresource bool
}

// Analyze implements Analyzer.
func (g Gate) Analyze(object *unstructured.Unstructured, hints Hints) Result {
	result := g.Analyzer.Analyze(object, hints)
	if result.Status != Current {
		return result
	}
	seen, err := statusOf(object)
	if err != nil {
		return faulty(err)
	}
	s := suspect{object: object, kind: object.GroupVersionKind().GroupKind(), seen: seen, hints: result.Hints, statusSubresource: g.StatusSubresource}
	for _, doubt := range doubts {
		if status, message := doubt(s); status != Current {
			result.Status, result.Message = status, message
			return result
		}
	}
	return result
}

// suspect is an object that was called current.
type suspect struct {
	object            *unstructured.Unstructured
	kind              schema.GroupKind
	seen              seenStatus
	hints             Hints
	statusSubresource bool
}

// doubts are what kstatus does not ask, or not of every kind. Each gives Current when it has nothing to say.
var doubts = []func(suspect) (Status, string){
	nobodyLooked,
	ambiguousReady,
	lacksOfItsKind,
	staleCondition,
	wantsNoPods,
	onDelete,
	failedPod,
}

// ofItsKind are conditions that kinds of Kubernetes itself need to be of use. To kstatus a running Job is current.
var ofItsKind = map[schema.GroupKind][]string{
	{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: {"Established", "NamesAccepted"},
	{Group: "apiregistration.k8s.io", Kind: "APIService"}:             {"Available"},
	{Group: "batch", Kind: "Job"}:                                     {"Complete"},
}

// known reports whether kstatus has rules of its own for the kind, so that it needs neither a status nor a condition Ready.
func (s suspect) known() bool { return kstatus.GetLegacyConditionsFn(s.object) != nil }

// nobodyLooked : to kstatus an object that has no status is current.
func nobodyLooked(s suspect) (Status, string) {
	if status, _ := s.object.Object["status"].(map[string]any); s.statusSubresource && len(status) == 0 && !s.known() {
		return InProgress, "it has no status yet"
	}
	return Current, ""
}

// ambiguousReady : kstatus goes by the first of several conditions Ready, and passes over a status that is none of the three.
func ambiguousReady(s suspect) (Status, string) {
	if s.known() {
		return Current, ""
	}
	for _, c := range s.seen.all("Ready") {
		switch c.Status {
		case corev1.ConditionTrue:
		case corev1.ConditionFalse, corev1.ConditionUnknown:
			return InProgress, c.String()
		default:
			return Unknown, fmt.Sprintf("condition Ready has status %q, which is none of True, False and Unknown", c.Status)
		}
	}
	return Current, ""
}

func lacksOfItsKind(s suspect) (Status, string) {
	for _, conditionType := range ofItsKind[s.kind] {
		if missing := s.seen.lacks(conditionType); missing != "" {
			return InProgress, missing
		}
	}
	return Current, ""
}

// staleCondition : kstatus does not read the observedGeneration of conditions. One that is of another generation tells of
// another spec, or of an earlier life of an object that was restored from a backup.
func staleCondition(s suspect) (Status, string) {
	generation := s.object.GetGeneration()
	types := append([]string{"Ready"}, s.hints.Conditions...)
	for _, conditionType := range append(types, ofItsKind[s.kind]...) {
		for _, c := range s.seen.all(conditionType) {
			if c.ObservedGeneration != nil && *c.ObservedGeneration != generation {
				return InProgress, fmt.Sprintf("condition %s is about generation %d, and the object is at %d", c.Type, *c.ObservedGeneration, generation)
			}
		}
	}
	return Current, ""
}

// wantsNoPods : to kstatus a workload that asks for no pods has all of them.
func wantsNoPods(s suspect) (Status, string) {
	var wanted []string
	switch s.kind {
	case schema.GroupKind{Group: "apps", Kind: "DaemonSet"}:
		wanted = []string{"status", "desiredNumberScheduled"}
	case schema.GroupKind{Group: "apps", Kind: "Deployment"}, schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}:
		wanted = []string{"spec", "replicas"}
	default:
		return Current, ""
	}
	if n, found, _ := unstructured.NestedInt64(s.object.Object, wanted...); found && n == 0 {
		return InProgress, "it asks for no pods at all, so none of them is ready"
	}
	return Current, ""
}

// onDelete : to kstatus a StatefulSet whose pods are replaced by hand is current whatever its pods do.
func onDelete(s suspect) (Status, string) {
	strategy, _, _ := unstructured.NestedString(s.object.Object, "spec", "updateStrategy", "type")
	if s.kind != (schema.GroupKind{Group: "apps", Kind: "StatefulSet"}) || strategy != "OnDelete" {
		return Current, ""
	}
	wanted, found, _ := unstructured.NestedInt64(s.object.Object, "spec", "replicas")
	if !found {
		wanted = 1 // as the API server has it
	}
	if ready, _, _ := unstructured.NestedInt64(s.object.Object, "status", "readyReplicas"); ready < wanted {
		return InProgress, fmt.Sprintf("%d of %d pods are ready", ready, wanted)
	}
	return Current, ""
}

// failedPod : to kstatus a pod that failed has completed.
func failedPod(s suspect) (Status, string) {
	if phase, _, _ := unstructured.NestedString(s.object.Object, "status", "phase"); s.kind.Group == "" && s.kind.Kind == "Pod" && phase == string(corev1.PodFailed) {
		return Failed, "the pod failed"
	}
	return Current, ""
}
