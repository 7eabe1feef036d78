package objectstatus

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kstatus "sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

// Status is how far an object has come. The values are those of kstatus.
type Status string

const (
	// Current : the object is what its spec asks for. Every other status is not ready.
	Current = Status(kstatus.CurrentStatus)
	// InProgress : it is on its way.
	InProgress = Status(kstatus.InProgressStatus)
	// Failed : it will not get there by itself.
	Failed = Status(kstatus.FailedStatus)
	// Terminating : it is being deleted.
	Terminating = Status(kstatus.TerminatingStatus)
	// Unknown : nobody can say, e.g. since its status cannot be read, or a hint is wrong.
	Unknown = Status(kstatus.UnknownStatus)
)

// Result is what an analysis came to.
type Result struct {
	Status Status
	// Message says why, in words.
	Message string
	// Hints that were in force: those of the caller and those of the object.
	Hints Hints
	// Fault is why waiting does not help: hints that are wrong, or a status that cannot be read. Then Status is Unknown.
	Fault error
}

// Analyzer says how far an object has come. Implementations may be used concurrently and must not change the object.
type Analyzer interface {
	// Analyze looks at an object as the API server gave it. hints are the caller's; the object may carry more.
	Analyze(object *unstructured.Unstructured, hints Hints) Result
}

// DefaultAnnotationPrefix is the prefix of the hint annotation unless another is configured.
const DefaultAnnotationPrefix = "fettle.dev"

// KStatus analyzes with kstatus and hints. The zero value reads hints from the annotation fettle.dev/status-hint.
// Source: spec/status-detection.
type KStatus struct {
	// AnnotationPrefixes are those of the annotations <prefix>/status-hint that are read. Hints of several annotations are
	// combined. Empty means DefaultAnnotationPrefix alone.
	AnnotationPrefixes []string
}

// Analyze implements Analyzer. Hints never make an object ready that kstatus finds is not.
func (k KStatus) Analyze(object *unstructured.Unstructured, hints Hints) Result {
	hints, err := k.hintsOn(object, hints)
	if err != nil {
		return faulty(err)
	}
	computed, err := kstatus.Compute(object)
	if err != nil {
		return faulty(fmt.Errorf("status cannot be read: %w", err))
	}
	seen, err := statusOf(object)
	if err != nil {
		return faulty(err)
	}
	result := Result{Status: Status(computed.Status), Message: messageOf(computed), Hints: hints}
	switch {
	case result.Status == Terminating:
	case hints.ObservedGeneration && !seen.observed(object.GetGeneration()):
		result.Status = InProgress
		result.Message = fmt.Sprintf("status.observedGeneration is not set, so generation %d has not been looked at yet", object.GetGeneration())
	case result.Status == Current:
		seen.fulfil(&result)
	}
	return result
}

// hintsOn adds the hints on the object to those of the caller.
func (k KStatus) hintsOn(object *unstructured.Unstructured, hints Hints) (Hints, error) {
	prefixes := k.AnnotationPrefixes
	if len(prefixes) == 0 {
		prefixes = []string{DefaultAnnotationPrefix}
	}
	annotations := object.GetAnnotations()
	for _, prefix := range prefixes {
		annotation := prefix + "/" + HintAnnotation
		more, err := ParseHints(annotations[annotation])
		if err != nil {
			return Hints{}, fmt.Errorf("annotation %s: %w", annotation, err)
		}
		hints = hints.And(more)
	}
	return hints, nil
}

func faulty(err error) Result { return Result{Status: Unknown, Message: err.Error(), Fault: err} }

// messageOf falls back to the reason: the message of a condition may be empty.
func messageOf(r *kstatus.Result) string {
	if r.Message == "" && len(r.Conditions) > 0 {
		return r.Conditions[0].Reason
	}
	return r.Message
}

// condition is an entry of status.conditions.
type condition struct {
	Type               string                 `json:"type"`
	Status             corev1.ConditionStatus `json:"status"`
	Reason             string                 `json:"reason"`
	Message            string                 `json:"message"`
	ObservedGeneration *int64                 `json:"observedGeneration"`
}

// seenStatus is the part of a status that kinds have in common.
type seenStatus struct {
	ObservedGeneration *int64      `json:"observedGeneration"`
	Conditions         []condition `json:"conditions"`
}

func statusOf(object *unstructured.Unstructured) (seenStatus, error) {
	var seen struct {
		Status seenStatus `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &seen); err != nil {
		return seenStatus{}, fmt.Errorf("status cannot be read: %w", err)
	}
	return seen.Status, nil
}

// all gives every entry of a type. There should be one at most, but nobody enforces that.
func (s seenStatus) all(conditionType string) []condition {
	var all []condition
	for _, c := range s.Conditions {
		if c.Type == conditionType {
			all = append(all, c)
		}
	}
	return all
}

// observed reports whether the generation was looked at, for an object that is known to say so. A controller that says it in
// its Ready condition only has said it, too. kstatus has compared the field itself where it is there.
func (s seenStatus) observed(generation int64) bool {
	if s.ObservedGeneration != nil {
		return *s.ObservedGeneration == generation
	}
	for _, c := range s.all("Ready") {
		if c.ObservedGeneration != nil {
			return *c.ObservedGeneration == generation
		}
	}
	return false
}

// fulfil looks whether an object that kstatus calls current has the conditions that hints ask for.
func (s seenStatus) fulfil(result *Result) {
	if result.Hints.ReadyCondition && len(s.all("Ready")) == 0 {
		result.Status, result.Message = Unknown, "it has no condition Ready yet"
		return
	}
	for _, conditionType := range result.Hints.Conditions {
		if missing := s.lacks(conditionType); missing != "" {
			result.Status, result.Message = InProgress, missing
			return
		}
	}
}

// lacks says what keeps a condition from being True, in words; empty when nothing does.
func (s seenStatus) lacks(conditionType string) string {
	all := s.all(conditionType)
	if len(all) == 0 {
		return fmt.Sprintf("it has no condition %s yet", conditionType)
	}
	for _, c := range all {
		if c.Status != corev1.ConditionTrue {
			return c.String()
		}
	}
	return ""
}

func (c condition) String() string {
	text := fmt.Sprintf("condition %s is %s", c.Type, c.Status)
	switch {
	case c.Message != "":
		return text + ": " + c.Message
	case c.Reason != "":
		return text + ": " + c.Reason
	}
	return text
}
