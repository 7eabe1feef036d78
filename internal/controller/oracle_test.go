package controller

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/taints"
)

// The oracle says, from the documentation of the API alone and with none of the controller's code, what a node may look
// like once all is quiet. It cannot know which of the states of a burst of changes the controller has seen: so it follows
// every node through all that it could have seen, in any mixture, and ends with the set of what may have come of it. For
// what does not depend on the past, which is most, that set has one member.

// nodeView is what a decision goes by, apart from what decisions leave on the node.
type nodeView struct {
	pool string
	// statuses are those of the conditions that the node has, stale says that one counts as none for rules with maxAge.
	statuses map[string]corev1.ConditionStatus
	stale    map[string]bool
}

// nodeState is what decisions leave on a node, and the taints of others.
type nodeState struct {
	taints map[string]string          // value by key:effect
	owners map[string]map[string]bool // UIDs of rules by key:effect
	marked map[string]bool            // UIDs of rules
}

func newNodeState() nodeState {
	return nodeState{taints: map[string]string{}, owners: map[string]map[string]bool{}, marked: map[string]bool{}}
}

func (s nodeState) clone() nodeState {
	next := nodeState{taints: maps.Clone(s.taints), owners: map[string]map[string]bool{}, marked: maps.Clone(s.marked)}
	for id, owners := range s.owners {
		next.owners[id] = maps.Clone(owners)
	}
	return next
}

// String is the same for equal states.
func (s nodeState) String() string {
	var out strings.Builder
	for _, id := range slices.Sorted(maps.Keys(s.taints)) {
		fmt.Fprintf(&out, "taint %s=%s; ", id, s.taints[id])
	}
	for _, id := range slices.Sorted(maps.Keys(s.owners)) {
		fmt.Fprintf(&out, "%s owned by %v; ", id, slices.Sorted(maps.Keys(s.owners[id])))
	}
	for _, uid := range slices.Sorted(maps.Keys(s.marked)) {
		fmt.Fprintf(&out, "passed %s; ", uid)
	}
	if out.Len() == 0 {
		return "bare"
	}
	return out.String()
}

// stateOf reads a node as it is. Kubernetes' own taints are left out.
func stateOf(n *corev1.Node) (nodeState, error) {
	s := newNodeState()
	for _, t := range n.Spec.Taints {
		if !strings.HasPrefix(t.Key, "node.kubernetes.io/") {
			s.taints[t.Key+":"+string(t.Effect)] = t.Value
		}
	}
	if record := n.Annotations[taints.RecordAnnotation]; record != "" {
		var entries []struct {
			Key, Effect string
			Rules       []string
		}
		if err := json.Unmarshal([]byte(record), &entries); err != nil {
			return s, fmt.Errorf("the record of node %s: %w", n.Name, err)
		}
		for _, e := range entries {
			owners := map[string]bool{}
			for _, uid := range e.Rules {
				owners[uid] = true
			}
			s.owners[e.Key+":"+e.Effect] = owners
		}
	}
	for key := range n.Annotations {
		if uid, ok := strings.CutPrefix(key, readinessv1alpha1.BootstrapMarkerPrefix); ok {
			s.marked[uid] = true
		}
	}
	return s, nil
}

// ruleSet is the rules as they were at one moment, by name.
type ruleSet []*rule

func (s ruleSet) byUID(uid string) *rule {
	for _, r := range s {
		if string(r.UID) == uid {
			return r
		}
	}
	return nil
}

func frozen(r *rule) bool { return r.Spec.DryRun || r.Spec.Suspend }

func selects(r *rule, v nodeView) bool {
	for key, value := range r.Spec.NodeSelector.MatchLabels {
		if key != "pool" || string(value) != v.pool {
			return false
		}
	}
	for _, e := range r.Spec.NodeSelector.MatchExpressions {
		if in := slices.Contains(e.Values, v.pool); e.Operator == "In" && !in || e.Operator == "NotIn" && in {
			return false
		}
	}
	return true
}

func fulfils(r *rule, v nodeView) bool {
	met := 0
	for _, c := range r.Spec.Conditions {
		status, has := v.statuses[c.Type]
		if !has || c.MaxAge != nil && v.stale[c.Type] {
			if status = c.DefaultStatus; status == "" {
				status = corev1.ConditionUnknown
			}
		}
		if status == c.RequiredStatus {
			met++
		}
	}
	if r.Spec.ConditionPolicy == readinessv1alpha1.ConditionPolicyAnyOf {
		return met > 0
	}
	return met == len(r.Spec.Conditions)
}

// taintsHeld gives the taints of a rule, value by key:effect.
func taintsHeld(r *rule) map[string]string {
	held := map[string]string{}
	for _, t := range append([]readinessv1alpha1.TaintSpec{r.Spec.Taint}, r.Spec.Taints...) {
		effect := t.Effect
		if effect == corev1.TaintEffectNoExecute && !r.Spec.AllowEviction {
			effect = corev1.TaintEffectNoSchedule
		}
		id := t.Key + ":" + string(effect)
		if _, twice := held[id]; !twice {
			held[id] = t.Value
		}
	}
	return held
}

// outcome is what one look of the controller makes of a node. spared are rules that leave it alone since they hold enough.
func outcome(s nodeState, v nodeView, rules ruleSet, spared map[string]bool) nodeState {
	next := s.clone()
	held, holders, let := map[string]string{}, map[string]map[string]bool{}, map[string]bool{}
	for _, r := range rules { // by name: the first that holds gives the value
		uid := string(r.UID)
		once := r.Spec.EnforcementMode == readinessv1alpha1.EnforcementModeBootstrapOnly
		if frozen(r) || !selects(r, v) || once && s.marked[uid] {
			continue
		}
		fulfilled := fulfils(r, v)
		if !fulfilled && spared[uid] {
			continue
		}
		if once && fulfilled {
			next.marked[uid] = true
		}
		for id, value := range taintsHeld(r) {
			if fulfilled {
				let[id] = true
				continue
			}
			if holders[id] == nil {
				held[id], holders[id] = value, map[string]bool{}
			}
			holders[id][uid] = true
		}
	}
	ids := map[string]bool{}
	for _, some := range []map[string]bool{let, keysOf(holders), keysOf(s.owners)} {
		maps.Copy(ids, some)
	}
	for id := range ids {
		kept := map[string]bool{}
		for uid := range s.owners[id] {
			if r := rules.byUID(uid); r != nil && frozen(r) {
				kept[uid] = true
			}
		}
		_, there := s.taints[id]
		switch {
		case holders[id] != nil:
			next.taints[id] = held[id]
			maps.Copy(holders[id], kept)
			next.owners[id] = holders[id]
		case !there:
			delete(next.owners, id)
		case len(kept) > 0:
			next.owners[id] = kept
		default:
			delete(next.taints, id)
			delete(next.owners, id)
		}
	}
	for uid := range next.marked {
		r := rules.byUID(uid)
		if r == nil || !frozen(r) && r.Spec.EnforcementMode != readinessv1alpha1.EnforcementModeBootstrapOnly {
			delete(next.marked, uid)
		}
	}
	return next
}

func keysOf[V any](m map[string]V) map[string]bool {
	keys := map[string]bool{}
	for key := range m {
		keys[key] = true
	}
	return keys
}

// believer follows one node through what the controller may have seen since all was quiet.
type believer struct {
	now    nodeView
	pools  []string
	seen   map[string]map[corev1.ConditionStatus]bool // "" for absent
	states map[string]nodeState
}

func newBeliever(v nodeView, s nodeState) *believer {
	b := &believer{now: v, states: map[string]nodeState{s.String(): s}}
	b.calm()
	return b
}

// calm forgets the past: everybody has seen the present.
func (b *believer) calm() {
	b.pools = []string{b.now.pool}
	b.seen = map[string]map[corev1.ConditionStatus]bool{}
	for _, conditionType := range modelTypes {
		b.seen[conditionType] = map[corev1.ConditionStatus]bool{b.now.statuses[conditionType]: true}
	}
}

// turn takes in that the node looks different now.
func (b *believer) turn(pool string, statuses map[string]corev1.ConditionStatus) {
	b.now = nodeView{pool: pool, statuses: maps.Clone(statuses)}
	if !slices.Contains(b.pools, pool) {
		b.pools = append(b.pools, pool)
	}
	for _, conditionType := range modelTypes {
		b.seen[conditionType][statuses[conditionType]] = true
	}
}

// views are all mixtures of what was seen, those with stale conditions among them where rules ask for an age.
func (b *believer) views(seen []ruleSet) []nodeView {
	ages := map[string][]bool{}
	for _, conditionType := range modelTypes {
		ages[conditionType] = []bool{false}
		for _, rules := range seen {
			if len(ages[conditionType]) == 1 && slices.ContainsFunc(rules, func(r *rule) bool { return asksForAge(r, conditionType) }) {
				ages[conditionType] = []bool{false, true}
			}
		}
	}
	var views []nodeView
	for _, pool := range b.pools {
		views = append(views, nodeView{pool: pool, statuses: map[string]corev1.ConditionStatus{}, stale: map[string]bool{}})
	}
	for conditionType, statuses := range b.seen {
		var next []nodeView
		for _, v := range views {
			for status := range statuses {
				for _, stale := range ages[conditionType] {
					more := nodeView{pool: v.pool, statuses: maps.Clone(v.statuses), stale: maps.Clone(v.stale)}
					if more.stale[conditionType] = stale; status != "" {
						more.statuses[conditionType] = status
					}
					next = append(next, more)
				}
			}
		}
		views = next
	}
	return views
}

func asksForAge(r *rule, conditionType string) bool {
	return slices.ContainsFunc(r.Spec.Conditions, func(c readinessv1alpha1.ConditionRequirement) bool {
		return c.Type == conditionType && c.MaxAge != nil
	})
}

// spread adds every state that the controller may have brought the node to by now.
func (b *believer) spread(seen []ruleSet) {
	views := b.views(seen)
	open := slices.Collect(maps.Values(b.states))
	for len(open) > 0 {
		s := open[0]
		open = open[1:]
		for _, rules := range seen {
			for _, v := range views {
				for _, spared := range sparings(rules) {
					next := outcome(s, v, rules, spared)
					if key := next.String(); b.states[key].taints == nil {
						b.states[key] = next
						open = append(open, next)
					}
				}
			}
		}
	}
}

// change lets somebody else edit the taints, whatever state the node is in.
func (b *believer) change(edit func(taints map[string]string)) {
	states := map[string]nodeState{}
	for _, s := range b.states {
		next := s.clone()
		edit(next.taints)
		states[next.String()] = next
	}
	b.states = states
}

// settle leaves of the states those that last, now that everybody has seen the present and conditions have grown old.
func (b *believer) settle(rules ruleSet) {
	v := b.aged()
	states := map[string]nodeState{}
	for _, s := range b.states {
		for _, spared := range sparings(rules) {
			next := outcome(s, v, rules, spared)
			states[next.String()] = next
		}
	}
	b.states = states
}

// aged is how the node looks once all is quiet: no condition gives a sign of life any more.
func (b *believer) aged() nodeView {
	v := b.now
	v.stale = map[string]bool{}
	for _, conditionType := range modelTypes {
		v.stale[conditionType] = true
	}
	return v
}

// sparings are all choices of rules at their bound.
func sparings(rules ruleSet) []map[string]bool {
	choices := []map[string]bool{{}}
	for _, r := range rules {
		if r.Spec.MaxTainted == nil {
			continue
		}
		for _, choice := range slices.Clone(choices) {
			more := maps.Clone(choice)
			more[string(r.UID)] = true
			choices = append(choices, more)
		}
	}
	return choices
}

// took says which of the states it turned out to be.
func (b *believer) took(s nodeState) { b.states = map[string]nodeState{s.String(): s} }
