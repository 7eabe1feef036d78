package readiness

import (
	"encoding/json"
	"fmt"
	"strings"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
)

// Bounds of what a status says; the CRD has the same.
const (
	maxNodes           = 100
	maxFailureMessage  = 1024
	maxObjectMessage   = 256
	maxStatementLength = 512
	maxSummary         = 2048
	// maxNamed bounds the nodes that one sentence names.
	maxNamed = 10
)

// bounds of the lists of a status, in bytes, whatever nodes and conditions are called.
type bounds struct {
	evaluations, failed, unseen int
	applied                     int
	// Of a dry run, in which no node is applied: each list of nodes, and the missing conditions.
	trial, missing int
}

// fullBounds keep a status under 50 KiB, messages included.
var fullBounds = bounds{evaluations: 24 << 10, failed: 8 << 10, unseen: 4 << 10, applied: 14 << 10, trial: 4 << 10, missing: 4 << 10}

// maxRule is what a rule takes at most, as JSON, unless its spec alone takes more.
const maxRule = 62 << 10

// boundsFor gives the bounds for a rule, so that spec and status together take no more than maxRule. The API server's
// record of who wrote which field of a spec is about as long as the spec.
func boundsFor(spec readinessv1alpha1.NodeReadinessRuleSpec) bounds {
	encoded, err := json.Marshal(spec)
	if err != nil { // plain data: cannot happen
		panic(err)
	}
	const full, fixed = 50 << 10, 10 << 10 // fixed are messages, counts and names
	left := maxRule - 2*len(encoded) - fixed
	scaled := func(limit int) int { return max(0, min(limit, limit*left/(full-fixed))) }
	b := fullBounds
	return bounds{scaled(b.evaluations), scaled(b.failed), scaled(b.unseen), scaled(b.applied), scaled(b.trial), scaled(b.missing)}
}

// room is what is left of a list.
type room struct{ entries, bytes int }

func (r *room) full() bool { return r.entries <= 0 || r.bytes <= 0 }

// takes reports whether there is room for an entry, and takes it up. The first that does not fit closes the list, so that
// it is always the beginning of the whole.
func (r *room) takes(entry any) bool {
	if r.full() {
		return false
	}
	encoded, err := json.Marshal(entry)
	if err != nil { // plain data: cannot happen
		panic(err)
	}
	r.entries, r.bytes = r.entries-1, r.bytes-len(encoded)-1
	return r.bytes >= 0
}

// fitting gives the first of the names, as many as there is room for.
func fitting(names []string, space room) []string {
	for i, name := range names {
		if !space.takes(name) {
			return names[:i]
		}
	}
	return names
}

func capped(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	const more = " …"
	return strings.ToValidUTF8(s[:limit-len(more)], "") + more
}

// countedNodes says how many nodes there are.
func countedNodes(count int) string {
	if count == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", count)
}

// named writes the first names of a list of which there are count in all.
func named(names []string, count int) string {
	if len(names) > maxNamed {
		names = names[:maxNamed]
	}
	listed := strings.Join(names, ", ")
	if count > len(names) {
		return fmt.Sprintf("%s and %d more", listed, count-len(names))
	}
	return listed
}
