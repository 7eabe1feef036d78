package taints

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
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

// Decide computes the taints, the ownership record and the bootstrap markers that the rules want on a node. It reads the
// node's labels, annotations, taints and conditions. now stamps NoExecute taints that are added.
//
// A taint that a live rule names and whose rule selects the node is there if and only if one such rule is not fulfilled.
// A taint that the record knows and no live rule of the node names any more is removed, unless a frozen rule owns it.
// Every other taint is foreign and stays as it is.
func Decide(node *corev1.Node, rules *Rules, now time.Time) Decision {
	claims, completed := collect(node, rules)
	was := ReadRecord(node)
	record := Record{}
	next := Decision{Taints: slices.Clone(node.Spec.Taints)}

	for _, id := range union(claims, was) {
		c := claims[id]
		frozen := frozenOwners(was[id], rules)
		at := slices.IndexFunc(next.Taints, func(t corev1.Taint) bool { return idOf(t) == id })
		switch {
		case len(c.holding) > 0:
			next.hold(id, c.holding, at, was, now)
			record[id] = append(uids(c.holding), frozen...)
		case at < 0: // gone, and nobody wants it
		case len(frozen) > 0:
			record[id] = frozen
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
	next.annotate(node, record, completed, rules)
	return next
}

// collect asks every live rule that selects the node, and gives the bootstrap-only rules that this node now passes.
func collect(node *corev1.Node, rules *Rules) (map[ID]claim, []*Rule) {
	claims := map[ID]claim{}
	var completed []*Rule
	for _, rule := range rules.byName {
		if rule.Frozen || !rule.Selects(node) || rule.Completed(node) {
			continue
		}
		c := claims[rule.Taint]
		if rule.Fulfilled(node) {
			c.releasing = append(c.releasing, rule)
			if rule.BootstrapOnly {
				completed = append(completed, rule)
			}
		} else {
			c.holding = append(c.holding, rule)
		}
		claims[rule.Taint] = c
	}
	return claims, completed
}

// hold makes sure that the taint is there, with the value of the first rule by name.
func (d *Decision) hold(id ID, holding []*Rule, at int, was Record, now time.Time) {
	value := holding[0].Value
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

// annotate records who owns what, and what was completed.
func (d *Decision) annotate(node *corev1.Node, record Record, completed []*Rule, rules *Rules) {
	set := func(key string, value *string) {
		if d.Annotations == nil {
			d.Annotations = map[string]*string{}
		}
		d.Annotations[key] = value
	}
	had, recorded := node.Annotations[RecordAnnotation]
	switch has := record.encode(); {
	case has == "" && recorded:
		set(RecordAnnotation, nil)
	case has != had:
		set(RecordAnnotation, &has)
	}
	for _, rule := range completed {
		value := markerValue(rule.Name)
		set(rule.MarkerKey(), &value)
	}
	for key := range node.Annotations {
		if uid, ok := markedRule(key); ok && outlived(rules.Get(uid)) {
			set(key, nil)
		}
	}
}

// outlived reports whether a marker's rule is gone, or holds nodes continuously now: should it become bootstrap-only again,
// nodes have to pass it again.
func outlived(rule *Rule) bool { return rule == nil || !rule.Frozen && !rule.BootstrapOnly }

// markedRule returns the UID in the key of a bootstrap marker. Keys that end in a rule's name instead, as early versions
// of other controllers wrote them, are not ours.
func markedRule(key string) (types.UID, bool) {
	uid, ok := strings.CutPrefix(key, readinessv1alpha1.BootstrapMarkerPrefix)
	if !ok || len(uid) != 36 || strings.Count(uid, "-") != 4 {
		return "", false
	}
	return types.UID(uid), true
}

func markerValue(ruleName string) string {
	encoded, err := json.Marshal(struct {
		RuleName string `json:"rule-name"`
	}{ruleName})
	if err != nil { // a string: cannot happen
		panic(err)
	}
	return string(encoded)
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
