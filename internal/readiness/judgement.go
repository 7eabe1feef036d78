package readiness

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/events"
	"github.com/fettle-dev/fettle/internal/taints"
)

// Judgement is what was decided for a node, and what came of writing it.
type Judgement struct {
	// Was is the node as it was looked at, and Node as the write left it: the same when nothing was written.
	Was, Node *corev1.Node
	// Rules are those that the Decision was made from.
	Rules    *taints.Rules
	Decision taints.Decision
	// Fault of the write, or nil.
	Fault error
	// At is the time, by the clock of Memory.
	At time.Time
}

// Take takes a judgement down and gives the events that tell of it on the node. changed is true when a status of a rule
// may have to say something else.
func (s *Standings) Take(j Judgement) (told []events.Event, changed bool) {
	failure := j.failure()
	was := s.failureOf(j.Node.Name)
	again := failure != nil && was != nil && was.Message == failure.Message
	completed := j.completed()
	rules, current := s.rules.of(j.Rules)
	if current { // otherwise the rules changed meanwhile, and the node is about to be decided again
		changed = s.enter(j.Node, rules.version, j.standings(rules, s.memory.View(j.Node, j.At), failure != nil), failure)
		changed = s.meet(j.Node, rules.asked) || changed
	}
	if j.Fault == nil {
		changed = s.done(j, completed) || changed
	}
	return j.eventsOf(completed, again), changed
}

// failure is what status says of a write that failed, or nil.
func (j Judgement) failure() *Failure {
	if j.Fault == nil {
		return nil
	}
	reason := string(apierrors.ReasonForError(j.Fault))
	if reason == string(metav1.StatusReasonUnknown) {
		reason = NoteWriteFailed
	}
	return &Failure{Reason: reason, Message: capped(j.Fault.Error(), maxFailureMessage), At: j.At}
}

// completed gives the bootstrap-only rules that the node has passed with this judgement.
func (j Judgement) completed() []*taints.Rule {
	var passed []*taints.Rule
	for key, value := range j.Decision.Annotations {
		uid, marker := strings.CutPrefix(key, readinessv1alpha1.BootstrapMarkerPrefix)
		if rule := j.Rules.Get(types.UID(uid)); marker && value != nil && rule != nil && !rule.Completed(j.Was) {
			passed = append(passed, rule)
		}
	}
	return passed
}

// standings say how the node stands with every rule that selects it, but for suspended ones, about which nothing is
// computed.
func (j Judgement) standings(rules *compiledRules, seen taints.Seen, failed bool) map[types.UID]standing {
	out := map[types.UID]standing{}
	for _, rule := range rules.set.Selecting(j.Node) {
		if c := rules.byUID[rule.UID]; !c.suspended && !c.tried {
			out[rule.UID] = standing{outcome: j.outcome(rule, j.Decision, seen), failed: failed && j.concerns(rule)}
		}
	}
	for _, c := range rules.tried {
		if st, concerns := j.try(c.rule, rules.set, c.enforced, seen); concerns {
			out[c.rule.UID] = st
		}
	}
	return out
}

// outcome is what a rule that selects the node makes of it, given a decision in which the rule counts.
func (j Judgement) outcome(rule *taints.Rule, decision taints.Decision, seen taints.Seen) outcome {
	switch {
	case rule.Awaits(j.Node, seen):
		return awaiting
	case rule.Completed(j.Node), rule.Fulfilled(j.Node, seen):
		return ready
	case slices.Contains(decision.Spared, rule.UID):
		return spared
	}
	return held
}

// concerns reports whether what was to be written was on account of the rule: one that is named with a change, or any when
// only markers and the record were to change.
func (j Judgement) concerns(rule *taints.Rule) bool {
	for _, change := range j.Decision.Changes {
		if slices.Contains(change.Rules, rule.UID) {
			return true
		}
	}
	return len(j.Decision.Changes) == 0
}
