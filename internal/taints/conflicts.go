package taints

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Conflict is that two rules may say different things about one taint of the same node. A node is held while either rule
// holds it, and of those that hold it the first by name gives the taint's value.
type Conflict struct {
	// First and Second are the rules, by name.
	First, Second *Rule
	Taint         ID
	// Values is true when they differ about the taint's value; else they differ about when it is there.
	Values bool
}

// Conflicts gives all conflicts between rules that are enforced: by taint, then by name. What is frozen conflicts with
// nothing, so that a rule can be tried out beside the one it is to replace.
func (s *Rules) Conflicts() []Conflict {
	byTaint := map[ID][]*Rule{}
	for _, r := range s.byName {
		if r.Frozen {
			continue
		}
		for _, t := range r.Taints {
			byTaint[t.ID] = append(byTaint[t.ID], r)
		}
	}
	var out []Conflict
	for id, rules := range byTaint {
		for i, first := range rules {
			for _, second := range rules[i+1:] {
				values := first.value(id) != second.value(id)
				if (values || !first.demandsLike(second)) && first.Overlaps(second) {
					out = append(out, Conflict{First: first, Second: second, Taint: id, Values: values})
				}
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Conflict) int { return compareIDs(a.Taint, b.Taint) })
	return out
}

// demandsLike reports whether two rules are always fulfilled together.
func (r *Rule) demandsLike(other *Rule) bool {
	return r.AnyOf == other.AnyOf && r.BootstrapOnly == other.BootstrapOnly && r.Regate == other.Regate &&
		r.MaxTainted == nil && other.MaxTainted == nil &&
		reflect.DeepEqual(r.Requirements, other.Requirements) && reflect.DeepEqual(r.Objects, other.Objects)
}

// Overlaps reports whether some node could be selected by both rules. It is exact.
func (r *Rule) Overlaps(other *Rule) bool {
	a, some := r.selector.Requirements()
	b, others := other.selector.Requirements()
	if !some || !others {
		return false
	}
	byKey := map[string]allowed{}
	for _, requirement := range slices.Concat(a, b) {
		k, known := byKey[requirement.Key()]
		if !known {
			k = allowed{absent: true}
		}
		if k = k.and(requirement); k.nothing() {
			return false
		}
		byKey[requirement.Key()] = k
	}
	return true // keys do not depend on one another
}

// allowed says what a label may be: absent, one of some values, or any value but some.
type allowed struct {
	absent bool
	// values are those allowed; nil for all but those in not, of which there is always one.
	values sets.Set[string]
	not    sets.Set[string]
}

func (a allowed) nothing() bool { return !a.absent && a.values != nil && len(a.values) == 0 }

func (a allowed) and(r labels.Requirement) allowed {
	values := sets.New(r.ValuesUnsorted()...)
	switch r.Operator() {
	case selection.In, selection.Equals, selection.DoubleEquals:
		a.absent = false
		if a.values == nil {
			a.values = values.Difference(a.not)
		} else {
			a.values = a.values.Intersection(values)
		}
	case selection.NotIn, selection.NotEquals:
		if a.values == nil {
			a.not = values.Union(a.not)
		} else {
			a.values = a.values.Difference(values)
		}
	case selection.Exists:
		a.absent = false
	case selection.DoesNotExist:
		a.values = sets.New[string]()
	}
	return a
}
