package taints

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Rules is an immutable set of compiled rules, ordered by name. Rules that do not exist or are being deleted are not in
// it: what they own is removed.
type Rules struct {
	byName []*Rule
	byUID  map[types.UID]*Rule
	index  index
	// heard are the condition types whose reporters have to be listened to, with the shortest maxAge asked of each; 0 for
	// none.
	heard map[string]time.Duration
}

// NewRules makes a set of the rules given.
func NewRules(rules ...*Rule) *Rules {
	set := &Rules{byName: slices.Clone(rules), byUID: make(map[types.UID]*Rule, len(rules)), heard: map[string]time.Duration{}}
	slices.SortFunc(set.byName, func(a, b *Rule) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	for _, r := range set.byName {
		set.byUID[r.UID] = r
		set.listen(r)
	}
	set.index = newIndex(set.byName)
	return set
}

// listen notes which reporters a rule wants to be listened to.
func (s *Rules) listen(r *Rule) {
	for _, required := range r.Requirements {
		if required.MaxAge == nil && !r.Regate {
			continue
		}
		shortest := s.heard[required.Type]
		if required.MaxAge != nil && (shortest == 0 || required.MaxAge.Duration < shortest) {
			shortest = required.MaxAge.Duration
		}
		s.heard[required.Type] = shortest
	}
}

// All returns the rules by name. The slice must not be changed.
func (s *Rules) All() []*Rule { return s.byName }

// Get returns the rule with that UID, or nil.
func (s *Rules) Get(uid types.UID) *Rule { return s.byUID[uid] }

// Selecting returns the rules that select the node, by name. It costs what those rules cost, not what all rules do.
func (s *Rules) Selecting(node *corev1.Node) []*Rule {
	candidates := s.index.candidates(node.Labels)
	out := make([]*Rule, 0, len(candidates))
	for _, i := range candidates {
		if r := s.byName[i]; r.Selects(node) {
			out = append(out, r)
		}
	}
	return out
}

// Enforcing returns the same set with one rule enforced, whatever its dryRun says: the "what if" of a dry run.
func (s *Rules) Enforcing(uid types.UID) *Rules {
	rules := slices.Clone(s.byName)
	for i, r := range rules {
		if r.UID == uid {
			live := *r
			live.Frozen, live.since = false, nil
			rules[i] = &live
		}
	}
	return NewRules(rules...)
}
