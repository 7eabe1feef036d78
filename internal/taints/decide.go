package taints

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Decision is what has to change on a node. Its parts belong into one write.
type Decision struct {
	// Taints is the whole list that the node should have. It counts only with TaintsChanged.
	Taints        []corev1.Taint
	TaintsChanged bool
	// Annotations to set, or with a nil value to remove.
	Annotations map[string]*string
	// Changes tell what happens to single taints, by key and effect.
	Changes []Change
	// Spared are the rules that the node does not fulfil and that leave it as it is, since they hold as many nodes as they
	// may.
	Spared []types.UID
	// Due is when to decide again though nothing is observed; zero for never.
	Due time.Time
}

// Empty reports whether the node is as it should be.
func (d Decision) Empty() bool { return !d.TaintsChanged && len(d.Annotations) == 0 }

// Action is what happens to a taint.
type Action string

const (
	// Added : the taint was not there.
	Added Action = "Added"
	// Removed : the taint was there.
	Removed Action = "Removed"
	// Adopted : somebody else put the taint there, e.g. the kubelet at registration; from now on it is ours.
	Adopted Action = "Adopted"
)

// Change is what happens to one taint, and on account of which rules.
type Change struct {
	Action Action
	Taint  ID
	// Rules are those that hold the node, or, for Removed, those that let it go.
	Rules []types.UID
}

// claim is what the live rules that select a node say about one taint.
type claim struct {
	holding   []*Rule // not fulfilled; by name
	releasing []*Rule // fulfilled
}

// said is what the rules that select a node say together.
type said struct {
	claims map[ID]claim
	judged []types.UID
	// marking are the live bootstrap-only rules, and passed those of them that the node has yet to be marked for.
	marking, passed []*Rule
	spared          []types.UID
	// awaiting are the rules of which nobody can say yet whether the node fulfils them: they leave it as it is.
	awaiting []types.UID
	due      time.Time
}

// keepers are those of the owners that leave the node as it is.
func (s said) keepers(owners []types.UID, rules *Rules) []types.UID {
	kept := frozenOwners(owners, rules)
	for _, uid := range owners {
		if slices.Contains(s.awaiting, uid) {
			kept = append(kept, uid)
		}
	}
	return kept
}

// Decide computes the taints, the ownership record and the markers that the rules want on a node. It reads the node's
// labels, annotations, taints, conditions and boot ID, and what was seen of it.
//
// A taint that a live rule names and whose rule selects the node is there if any such rule is not fulfilled: where rules
// disagree, holding wins, and the value is that of the first rule by name of those that hold. Else it is absent. A rule at
// its bound of nodes says nothing about further ones. A taint that the record knows and no live rule of the node names any
// more is removed, unless a frozen rule owns it, or one that waits for the first look at an object. Every other taint is foreign and stays as it is.
func Decide(node *corev1.Node, rules *Rules, seen Seen) Decision {
	says := collect(node, rules, seen)
	was := ReadRecord(node)
	record := Record{}
	next := Decision{Taints: slices.Clone(node.Spec.Taints), Spared: says.spared, Due: says.due}

	for _, id := range union(says.claims, was) {
		c := says.claims[id]
		kept := says.keepers(was[id], rules)
		at := slices.IndexFunc(next.Taints, func(t corev1.Taint) bool { return idOf(t) == id })
		switch {
		case len(c.holding) > 0:
			next.hold(id, c.holding, at, was, seen.Now)
			record[id] = append(uids(c.holding), kept...)
		case at < 0: // gone, and nobody wants it
		case len(kept) > 0:
			record[id] = kept
		default:
			next.Taints = slices.Delete(next.Taints, at, at+1)
			next.TaintsChanged = true
			let := uids(c.releasing)
			if len(let) == 0 {
				let = was[id]
			}
			next.Changes = append(next.Changes, Change{Action: Removed, Taint: id, Rules: let})
		}
	}
	next.annotate(node, record, says, rules)
	return next
}

// collect asks every live rule that selects the node.
func collect(node *corev1.Node, rules *Rules, seen Seen) said {
	says := said{claims: map[ID]claim{}}
	for _, rule := range rules.Selecting(node) {
		says.due = sooner(says.due, rule.due(node, seen))
		if rule.Frozen {
			continue
		}
		if rule.Awaits(node, seen) {
			says.awaiting = append(says.awaiting, rule.UID)
			continue
		}
		if rule.remembers {
			says.judged = append(says.judged, rule.UID)
		}
		if rule.BootstrapOnly {
			says.marking = append(says.marking, rule)
		}
		if rule.Completed(node) {
			continue
		}
		fulfilled := rule.Fulfilled(node, seen)
		if !fulfilled && rule.spares(node, seen) {
			says.spared = append(says.spared, rule.UID)
			continue
		}
		if fulfilled && rule.BootstrapOnly && rule.metNow(node, seen) {
			says.passed = append(says.passed, rule)
		}
		for _, t := range rule.Taints {
			c := says.claims[t.ID]
			if fulfilled {
				c.releasing = append(c.releasing, rule)
			} else {
				c.holding = append(c.holding, rule)
			}
			says.claims[t.ID] = c
		}
	}
	return says
}

// hold makes sure that the taint is there, with the value of the first rule by name.
func (d *Decision) hold(id ID, holding []*Rule, at int, was Record, now time.Time) {
	value := holding[0].value(id)
	if at < 0 {
		taint := corev1.Taint{Key: id.Key, Value: value, Effect: id.Effect}
		if id.Effect == corev1.TaintEffectNoExecute {
			taint.TimeAdded = &metav1.Time{Time: now.Truncate(time.Second)}
		}
		d.Taints = append(d.Taints, taint)
		d.TaintsChanged = true
		d.Changes = append(d.Changes, Change{Action: Added, Taint: id, Rules: uids(holding)})
		return
	}
	if d.Taints[at].Value != value {
		d.Taints[at].Value = value
		d.TaintsChanged = true
	}
	if _, owned := was[id]; !owned {
		d.Changes = append(d.Changes, Change{Action: Adopted, Taint: id, Rules: uids(holding)})
	}
}

// annotate records who owns what, who has judged the node, and what it has passed.
func (d *Decision) annotate(node *corev1.Node, record Record, says said, rules *Rules) {
	set := func(key string, value *string) {
		if d.Annotations == nil {
			d.Annotations = map[string]*string{}
		}
		d.Annotations[key] = value
	}
	keep := func(key, value string) {
		switch had, there := node.Annotations[key]; {
		case value == "" && there:
			set(key, nil)
		case value != had:
			set(key, &value)
		}
	}
	keep(RecordAnnotation, record.encode())
	keep(JudgedAnnotation, encodeJudged(append(says.judged, says.keepers(readJudged(node), rules)...)))
	for _, rule := range says.marking {
		rule.mark(node, slices.Contains(says.passed, rule), set)
	}
	for key := range node.Annotations {
		if uid, ok := markedRule(key); ok && outlived(rules.Get(uid)) {
			set(key, nil)
		}
	}
}

// due is when what the rule says of the node may change though nothing is observed; zero for never.
func (r *Rule) due(node *corev1.Node, seen Seen) time.Time {
	var due time.Time
	if r.Completed(node) {
		return due
	}
	for _, required := range r.Requirements {
		if required.MaxAge != nil {
			due = sooner(due, seen.History.expires(required, node, seen.Now))
		}
		if h, known := seen.History.holds[holdID{r.UID, required.Type}]; known && h.met != h.counts {
			due = sooner(due, h.due(required.For))
		}
	}
	return due
}

// sooner gives the earlier of two times, of which zero ones are never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func frozenOwners(owners []types.UID, rules *Rules) []types.UID {
	var frozen []types.UID
	for _, uid := range owners {
		if rule := rules.Get(uid); rule != nil && rule.Frozen {
			frozen = append(frozen, uid)
		}
	}
	return frozen
}

func uids(rules []*Rule) []types.UID {
	out := make([]types.UID, 0, len(rules)+1)
	for _, r := range rules {
		out = append(out, r.UID)
	}
	return out
}

// union gives every taint that is claimed or recorded, sorted.
func union(claims map[ID]claim, was Record) []ID {
	ids := make([]ID, 0, len(claims)+len(was))
	for id := range claims {
		ids = append(ids, id)
	}
	for id := range was {
		if _, both := claims[id]; !both {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, compareIDs)
	return ids
}
