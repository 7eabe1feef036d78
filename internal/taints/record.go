package taints

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// RecordAnnotation is the Node annotation that holds the ownership record. It is absent while no taint is owned.
const RecordAnnotation = "fettle.dev/taints"

// Record says which taints of a node are there on account of which rules.
type Record map[ID][]types.UID

type recordEntry struct {
	Key    string             `json:"key"`
	Effect corev1.TaintEffect `json:"effect"`
	Rules  []types.UID        `json:"rules"`
}

// ReadRecord reads a node's record. A record that somebody broke counts as none: taints that are still wanted are
// adopted anew, and the others are no longer known to be ours and stay. Entries of taints that no rule could own count as
// none, too: whoever wrote them, it was not the controller.
//
// All others are believed, also those of rules that nobody knows. A rule that was deleted, or whose taints were edited, while
// the controller was away is found by its entries alone, so their word cannot be checked against the rules. What keeps others
// from writing entries is the policy noderecords.fettle.dev in deploy/controller.
func ReadRecord(node *corev1.Node) Record {
	var entries []recordEntry
	if json.Unmarshal([]byte(node.Annotations[RecordAnnotation]), &entries) != nil {
		return Record{}
	}
	record := make(Record, len(entries))
	for _, e := range entries {
		id := ID{Key: e.Key, Effect: e.Effect}
		if !ownable(id) {
			continue
		}
		record[id] = append(record[id], e.Rules...)
	}
	return record
}

// ownable reports whether a rule could name such a taint: its key has a prefix, and not one of Kubernetes' own. The custom
// resource of the rules demands the same.
func ownable(id ID) bool {
	prefix, _, prefixed := strings.Cut(id.Key, "/")
	switch prefix {
	case "node.kubernetes.io", "node-role.kubernetes.io", "node.cloudprovider.kubernetes.io":
		return false
	}
	return prefixed
}

// Names reports whether the record has a taint on account of the rule.
func (r Record) Names(uid types.UID) bool {
	for _, uids := range r {
		if slices.Contains(uids, uid) {
			return true
		}
	}
	return false
}

// encode gives the annotation's value, the same for equal records, or "" for an empty record.
func (r Record) encode() string {
	if len(r) == 0 {
		return ""
	}
	entries := make([]recordEntry, 0, len(r))
	for id, uids := range r {
		uids = slices.Clone(uids)
		slices.Sort(uids)
		entries = append(entries, recordEntry{Key: id.Key, Effect: id.Effect, Rules: slices.Compact(uids)})
	}
	slices.SortFunc(entries, func(a, b recordEntry) int {
		return compareIDs(ID{a.Key, a.Effect}, ID{b.Key, b.Effect})
	})
	encoded, err := json.Marshal(entries)
	if err != nil { // strings only: cannot happen
		panic(err)
	}
	return string(encoded)
}

// JudgedAnnotation is the Node annotation that lists the UIDs of the rules that have judged the node before, as far as they
// treat such nodes differently from new ones: rules with maxTainted or a minimum hold before adding. It changes in the
// write that follows the first judgement, and costs no write from then on.
const JudgedAnnotation = "fettle.dev/judged"

// readJudged reads it. One that somebody broke counts as none: the node is new to every rule.
func readJudged(node *corev1.Node) []types.UID {
	var uids []types.UID
	if value := node.Annotations[JudgedAnnotation]; value == "" || json.Unmarshal([]byte(value), &uids) != nil {
		return nil
	}
	return uids
}

// encodeJudged gives the annotation's value, the same for equal sets, or "" for none.
func encodeJudged(uids []types.UID) string {
	if len(uids) == 0 {
		return ""
	}
	uids = slices.Clone(uids)
	slices.Sort(uids)
	encoded, err := json.Marshal(slices.Compact(uids))
	if err != nil { // strings only: cannot happen
		panic(err)
	}
	return string(encoded)
}
