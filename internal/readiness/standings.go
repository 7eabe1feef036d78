package readiness

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
)

// Standings knows how every node stands with every rule that selects it, as of the last decision about the node. It is
// kept up to date node by node: counts of a rule cost nothing to read, and its status needs no look at all nodes. It may
// be used concurrently.
type Standings struct {
	rules  *Rules
	memory *Memory

	mu     sync.Mutex
	byRule map[types.UID]*roll // guarded by mu
	byNode map[string]*seat    // guarded by mu
	// types are the condition types that rules require and that a node has or had. Guarded by mu.
	types map[string]bool
	// settled is the newest version of the rules for which every node was decided. Guarded by mu.
	settled int
}

// seat is what is known of a node beside how it stands with each rule.
type seat struct {
	// looked is the version of the rules that the node was decided with last.
	looked int
	// rules are those that have the node on their roll.
	rules   []types.UID
	failure *Failure
}

// Failure is why the taints of a node could not be written.
type Failure struct {
	Reason, Message string
	At              time.Time
}

// roll is how nodes stand with one rule.
type roll struct {
	counts   readinessv1alpha1.NodeCounts
	awaiting int32
	nodes    map[string]standing
	// sorted are the names of nodes, or nil when some came or went.
	sorted []string
	// changed is true when status may have to say something else.
	changed bool
	deeds   deeds
}

// standing is how one node stands with one rule.
type standing struct {
	outcome outcome
	// failed is true when the node could not be written to on account of the rule.
	failed bool
	trial  trial
}

// outcome is what a rule makes of a node.
type outcome uint8

const (
	// left : the node is not selected, but has taints on account of the rule, which is in dry run, from before.
	left outcome = iota
	ready
	held
	spared
	// awaiting : it depends on an object that nobody has looked at yet.
	awaiting
)

// NewStandings returns Standings without any node.
func NewStandings(rules *Rules, memory *Memory) *Standings {
	return &Standings{rules: rules, memory: memory, byRule: map[types.UID]*roll{}, byNode: map[string]*seat{}, types: map[string]bool{}}
}

// enter takes down how a node stands with rules, and reports whether a status may change by that.
func (s *Standings) enter(node *corev1.Node, version int, standings map[types.UID]standing, failure *Failure) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.byNode[node.Name]
	if at == nil {
		at = &seat{}
		s.byNode[node.Name] = at
	}
	for _, uid := range at.rules {
		if _, still := standings[uid]; !still {
			changed = s.byRule[uid].remove(node.Name) || changed
		}
	}
	if len(at.rules) != len(standings) || slices.ContainsFunc(at.rules, func(uid types.UID) bool { _, still := standings[uid]; return !still }) {
		at.rules = make([]types.UID, 0, len(standings))
		for uid := range standings {
			at.rules = append(at.rules, uid)
		}
	}
	for uid, st := range standings {
		changed = s.rollOf(uid).set(node.Name, st) || changed
	}
	changed = changed || at.looked != version
	at.looked, at.failure = version, failure
	return changed
}

// Forget lets go of a node that is gone. changed is true when a status of a rule may have to say something else.
func (s *Standings) Forget(node string) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.byNode[node]
	if at == nil {
		return false
	}
	for _, uid := range at.rules {
		changed = s.byRule[uid].remove(node) || changed
	}
	delete(s.byNode, node)
	return changed
}

// failureOf returns why the last write of a node failed, or nil.
func (s *Standings) failureOf(node string) *Failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.byNode[node]; at != nil {
		return at.failure
	}
	return nil
}

// meet takes down the condition types of a node that are among those asked for.
func (s *Standings) meet(node *corev1.Node, asked map[string]bool) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range node.Status.Conditions {
		if t := string(node.Status.Conditions[i].Type); asked[t] && !s.types[t] {
			s.types[t], changed = true, true
		}
	}
	if changed { // it is rare, and any rule may ask for the type
		for _, r := range s.byRule {
			r.changed = true
		}
	}
	return changed
}

// unseen gives those of the types that no node has or had.
func (s *Standings) unseen(required []readinessv1alpha1.ConditionRequirement) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var unseen []string
	for _, r := range required {
		if !s.types[r.Type] {
			unseen = append(unseen, r.Type)
		}
	}
	return unseen
}

// settle finds out up to which version of the rules every node of the cluster was decided.
func (s *Standings) settle(nodes []*corev1.Node, version int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settled = version
	for _, node := range nodes {
		if at := s.byNode[node.Name]; at == nil {
			s.settled = 0
		} else {
			s.settled = min(s.settled, at.looked)
		}
	}
}

// settledWith reports whether every node is known to have been decided with a version of the rules, or a newer one.
func (s *Standings) settledWith(version int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settled >= version
}

// keep drops the rolls of rules that are gone.
func (s *Standings) keep(exists func(types.UID) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, r := range s.byRule {
		if len(r.nodes) == 0 && !exists(uid) {
			delete(s.byRule, uid)
		}
	}
}

// rollOf returns the roll of a rule. The caller holds mu.
func (s *Standings) rollOf(rule types.UID) *roll {
	r := s.byRule[rule]
	if r == nil {
		r = &roll{nodes: map[string]standing{}, deeds: deeds{}, changed: true}
		s.byRule[rule] = r
	}
	return r
}

func (r *roll) set(node string, is standing) (changed bool) {
	was, known := r.nodes[node]
	if !known {
		r.sorted = nil
	} else {
		r.count(was, -1)
	}
	r.count(is, 1)
	r.nodes[node] = is
	// How a node falls short is shown too, and may be something else now.
	changed = !known || was != is || is.outcome == held || is.outcome == spared || is.failed
	r.changed = r.changed || changed
	return changed
}

func (r *roll) remove(node string) (changed bool) {
	was, known := r.nodes[node]
	if !known {
		return false
	}
	r.count(was, -1)
	delete(r.nodes, node)
	r.sorted, r.changed = nil, true
	return true
}

func (r *roll) count(st standing, by int32) {
	switch st.outcome {
	case left:
		return
	case ready:
		r.counts.Ready += by
	case held:
		r.counts.Held += by
	case spared:
		r.counts.Spared += by
	case awaiting:
		r.awaiting += by
	}
	r.counts.Selected += by
	if st.failed {
		r.counts.Failed += by
	}
}

// entry is one node of a view.
type entry struct {
	name string
	standing
}

// view is a roll at one moment.
type view struct {
	counts readinessv1alpha1.NodeCounts
	// nodes are by name.
	nodes []entry
	// complete is true when every node was decided with the rule as it is now, or a later version, and none awaits a first
	// look at an object.
	complete bool
}

// view reads the roll of a rule that is as it is since the version given, and takes note that it was read.
func (s *Standings) view(rule types.UID, since int) view {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rollOf(rule)
	if r.sorted == nil {
		r.sorted = make([]string, 0, len(r.nodes))
		for name := range r.nodes {
			r.sorted = append(r.sorted, name)
		}
		slices.Sort(r.sorted)
	}
	v := view{counts: r.counts, nodes: make([]entry, 0, len(r.sorted)), complete: s.settled >= since && r.awaiting == 0}
	for _, name := range r.sorted {
		v.nodes = append(v.nodes, entry{name, r.nodes[name]})
	}
	r.changed = false
	return v
}

// due reports whether the status of a rule may have to say something else than when its roll was read last.
func (s *Standings) due(rule types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.byRule[rule]
	return r == nil || r.changed
}

// again makes a rule due, e.g. since its status could not be written.
func (s *Standings) again(rule types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rollOf(rule).changed = true
}
