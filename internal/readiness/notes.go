package readiness

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/events"
	"github.com/fettle-dev/fettle/internal/taints"
)

// Note is a kind of event about a node and, summed up over nodes, about a rule. Beside these, rules have events with the
// reasons of those Statements that ask for one.
type Note struct {
	// Reason is never renamed. Those of taints are upstream's.
	Reason string
	// Action that was taken.
	Action string
	// Type is Normal or Warning.
	Type           string
	OnNode, OnRule bool
	// Says is what happened, as a clause.
	Says string
}

// Reasons of Notes.
const (
	NoteTaintAdded          = "TaintAdded"
	NoteTaintRemoved        = "TaintRemoved"
	NoteTaintAdopted        = "TaintAdopted"
	NoteBootstrapCompleted  = "BootstrapCompleted"
	NoteWriteFailed         = "WriteFailed"
	NoteConditionTypeUnseen = "ConditionTypeUnseen"
)

// Notes are all kinds of events about nodes. docs/reference/rules.md is made from them.
var Notes = []Note{
	{NoteTaintAdded, "AddTaint", corev1.EventTypeNormal, true, true, "a node does not fulfil a rule and was given its taint"},
	{NoteTaintRemoved, "RemoveTaint", corev1.EventTypeNormal, true, true, "a taint is no longer held on a node, and was removed"},
	{NoteTaintAdopted, "AdoptTaint", corev1.EventTypeNormal, true, true, "a taint that somebody else had put on a node is held there by a rule from now on"},
	{NoteBootstrapCompleted, "CompleteBootstrap", corev1.EventTypeNormal, true, true, "a node passed a bootstrap-only rule, which will not hold it again"},
	{NoteWriteFailed, "WriteNode", corev1.EventTypeWarning, true, false, "the taints of a node could not be written; it is tried again all the time, and told once"},
	{NoteConditionTypeUnseen, evaluateRule, corev1.EventTypeWarning, false, true, "a rule requires condition types that no node has or had: they are misspelt, or their reporter does not run"},
}

// evaluateRule is the action of events that follow from looking at a rule.
const evaluateRule = "EvaluateRule"

func note(reason string) Note {
	for _, n := range Notes {
		if n.Reason == reason {
			return n
		}
	}
	panic("a note that is not in the table: " + reason) // a test uses every reason
}

// noteOf says as which note each action on a taint is told.
var noteOf = map[taints.Action]string{
	taints.Added:   NoteTaintAdded,
	taints.Removed: NoteTaintRemoved,
	taints.Adopted: NoteTaintAdopted,
}

// saysOfTaint are the words about a taint on one node.
var saysOfTaint = map[taints.Action]string{
	taints.Added:   "added taint %s: held by %s",
	taints.Removed: "removed taint %s: released by %s",
	taints.Adopted: "adopted taint %s, which was there already: held by %s",
}

// eventsOf tells on the node what came of a judgement. again is true when the write failed before in the same way.
func (j Judgement) eventsOf(completed []*taints.Rule, again bool) []events.Event {
	about := func(reason, words string) events.Event {
		n := note(reason)
		return events.Event{Regarding: NodeReference(j.Node), Type: n.Type, Reason: n.Reason, Action: n.Action, Note: words, At: j.At}
	}
	if j.Fault != nil {
		if again {
			return nil
		}
		return []events.Event{about(NoteWriteFailed, "could not be written; it is tried again: "+j.Fault.Error())}
	}
	var out []events.Event
	for _, action := range []taints.Action{taints.Added, taints.Removed, taints.Adopted} {
		var words []string
		for _, change := range j.Decision.Changes {
			if change.Action == action {
				words = append(words, fmt.Sprintf(saysOfTaint[action], change.Taint, ruleNames(change.Rules, j.Rules)))
			}
		}
		if len(words) > 0 { // one event for the write, however many rules there are: events cost as much as writes
			out = append(out, about(noteOf[action], strings.Join(words, "; ")))
		}
	}
	for _, rule := range completed {
		out = append(out, about(NoteBootstrapCompleted, fmt.Sprintf("passed bootstrap-only rule %s", rule.Name)))
	}
	return out
}

// transitions tell what the conditions of a rule begin to say, and which of its condition types turn out to be unseen.
func transitions(was, is *readinessv1alpha1.NodeReadinessRule, at time.Time) []events.Event {
	var out []events.Event
	for _, c := range is.Status.Conditions {
		says := statement(c.Reason)
		before := apimeta.FindStatusCondition(was.Status.Conditions, c.Type)
		if says.Event != "" && (before == nil || before.Reason != c.Reason) {
			out = append(out, eventAbout(is, Note{Reason: c.Reason, Action: evaluateRule, Type: says.Event}, c.Message, at))
		}
	}
	var unseen []string
	for _, t := range is.Status.UnseenConditionTypes {
		if !slices.Contains(was.Status.UnseenConditionTypes, t) {
			unseen = append(unseen, t)
		}
	}
	if len(unseen) > 0 {
		out = append(out, eventAbout(is, note(NoteConditionTypeUnseen), "no node has or had a condition of type "+strings.Join(unseen, ", "), at))
	}
	return out
}

func eventAbout(rule *readinessv1alpha1.NodeReadinessRule, n Note, words string, at time.Time) events.Event {
	return events.Event{Regarding: ruleReference(rule), Type: n.Type, Reason: n.Reason, Action: n.Action, Note: words, At: at}
}

// NodeReference is how events refer to a node. kubectl describe looks for events by the node's UID.
func NodeReference(node *corev1.Node) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
}

// ruleReference is how events refer to a rule.
func ruleReference(rule *readinessv1alpha1.NodeReadinessRule) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: readinessv1alpha1.GroupVersion.String(), Kind: "NodeReadinessRule", Name: rule.Name, UID: rule.UID,
	}
}

func ruleNames(uids []types.UID, rules *taints.Rules) string {
	var names []string
	for _, uid := range uids {
		if rule := rules.Get(uid); rule != nil {
			names = append(names, "rule "+rule.Name)
		} else {
			names = append(names, "a deleted rule")
		}
	}
	if len(names) == 0 {
		return "no rule"
	}
	return strings.Join(names, ", ")
}
