package objectstatus

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// HintAnnotation is the name part of the annotation that carries the hints of an object; the prefix is configurable.
const HintAnnotation = "status-hint"

// Hints tell what kstatus cannot know of an object. The zero value tells nothing.
type Hints struct {
	// ObservedGeneration : the object's controller sets status.observedGeneration. While the field is absent the newest
	// spec has not been looked at.
	ObservedGeneration bool
	// ReadyCondition : the object's controller sets a condition Ready. While there is none the object is not ready.
	ReadyCondition bool
	// Conditions must be present and True, beside everything else.
	Conditions []string
}

// The hints as they are written.
const (
	hasObservedGeneration = "has-observed-generation"
	hasReadyCondition     = "has-ready-condition"
	conditionsHint        = "conditions"
)

// ParseHints reads hints as they are written in an annotation: separated by commas, conditions=<type>;<type> among them.
// Blanks around the parts do not matter, and hints may be spelled in camel or snake case too. Text that is blank holds no
// hints. An error names every fault; nothing that is at fault is ever ignored, since then it would be waited for without
// end, or not at all.
func ParseHints(text string) (Hints, error) {
	var hints Hints
	if strings.TrimSpace(text) == "" {
		return hints, nil
	}
	var faults []error
	for part := range strings.SplitSeq(text, ",") {
		if err := hints.add(strings.TrimSpace(part)); err != nil {
			faults = append(faults, err)
		}
	}
	if err := errors.Join(faults...); err != nil {
		return Hints{}, err
	}
	return hints, nil
}

func (h *Hints) add(part string) error {
	name, value, valued := strings.Cut(part, "=")
	switch name = strings.TrimSpace(name); spelling(name) {
	case spelling(hasObservedGeneration):
		h.ObservedGeneration = true
	case spelling(hasReadyCondition):
		h.ReadyCondition = true
	case conditionsHint:
		if !valued {
			return errors.New("hint conditions lacks its list: write conditions=<type>;<type>")
		}
		return h.addConditions(value)
	case "":
		return errors.New("a hint is empty: there is a comma too many, or a name is missing")
	default:
		return fmt.Errorf("hint %q is unknown; known are %s, %s and %s=<type>;<type>", name, hasObservedGeneration, hasReadyCondition, conditionsHint)
	}
	if valued {
		return fmt.Errorf("hint %s takes no value", name)
	}
	return nil
}

func (h *Hints) addConditions(list string) error {
	var faults []error
	for conditionType := range strings.SplitSeq(list, ";") {
		conditionType = strings.TrimSpace(conditionType)
		if conditionType == "" {
			faults = append(faults, fmt.Errorf("conditions=%s: a condition type is empty: the list is, or has a semicolon too many", list))
			continue
		}
		if wrong := validation.IsQualifiedName(conditionType); len(wrong) > 0 {
			faults = append(faults, fmt.Errorf("conditions=%s: %q is not a condition type: %s", list, conditionType, strings.Join(wrong, "; ")))
			continue
		}
		h.require(conditionType)
	}
	return errors.Join(faults...)
}

func (h *Hints) require(conditionType string) {
	if !slices.Contains(h.Conditions, conditionType) {
		h.Conditions = append(h.Conditions, conditionType)
	}
}

// And gives the hints of both.
func (h Hints) And(other Hints) Hints {
	both := Hints{
		ObservedGeneration: h.ObservedGeneration || other.ObservedGeneration,
		ReadyCondition:     h.ReadyCondition || other.ReadyCondition,
		Conditions:         slices.Clone(h.Conditions),
	}
	for _, conditionType := range other.Conditions {
		both.require(conditionType)
	}
	return both
}

// spelling makes has-ready-condition, hasReadyCondition and has_ready_condition the same.
func spelling(name string) string {
	return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
}
