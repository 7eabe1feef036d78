package taints

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// index finds the rules that may select a node by its labels. Each rule stands in it under one label that it demands: a
// node without it is not selected. Rules that demand none are candidates for every node.
type index struct {
	byKey map[string]indexedKey
	rest  []int
}

type indexedKey struct {
	// present has the rules that demand the key with any value.
	present []int
	byValue map[string][]int
}

// newIndex indexes rules by their place in the slice.
func newIndex(rules []*Rule) index {
	x := index{byKey: map[string]indexedKey{}}
	for i, rule := range rules {
		key, values, ok := demanded(rule.selector)
		if !ok {
			x.rest = append(x.rest, i)
			continue
		}
		k := x.byKey[key]
		if k.byValue == nil {
			k.byValue = map[string][]int{}
		}
		if len(values) == 0 {
			k.present = append(k.present, i)
		}
		for _, value := range values {
			k.byValue[value] = append(k.byValue[value], i)
		}
		x.byKey[key] = k
	}
	return x
}

// demanded gives a label that a selector demands, with one of these values, or with any where there are none. A demand of
// values tells more nodes apart than one of presence, and of few values more than of many.
func demanded(selector labels.Selector) (key string, values []string, ok bool) {
	requirements, selectable := selector.Requirements()
	if !selectable { // selects nothing
		return "", nil, false
	}
	for _, r := range requirements {
		switch r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			if is := r.Values().List(); !ok || len(values) == 0 || len(is) < len(values) {
				key, values, ok = r.Key(), is, true
			}
		case selection.Exists:
			if !ok {
				key, ok = r.Key(), true
			}
		}
	}
	return key, values, ok
}

// candidates gives the places of the rules that may select a node with these labels, in ascending order.
func (x index) candidates(of map[string]string) []int {
	found := slices.Clone(x.rest)
	take := func(k indexedKey, value string) {
		found = append(found, k.present...)
		found = append(found, k.byValue[value]...)
	}
	if len(x.byKey) < len(of) { // rules know fewer labels than nodes have, as a rule
		for key, k := range x.byKey {
			if value, there := of[key]; there {
				take(k, value)
			}
		}
	} else {
		for key, value := range of {
			if k, there := x.byKey[key]; there {
				take(k, value)
			}
		}
	}
	slices.Sort(found)
	return found
}
