package readiness

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Bounds of what a status says. The CRD bounds the entries; the bytes keep a rule under 64 KiB whatever nodes and conditions
// are called.
const (
	maxNodes           = 100
	maxFailureMessage  = 1024
	maxObjectMessage   = 256
	maxStatementLength = 512
	maxSummary         = 2048

	maxEvaluationBytes = 24 << 10
	maxAppliedBytes    = 14 << 10
	maxFailedBytes     = 8 << 10
	maxUnseenBytes     = 4 << 10
	// Of a dry run, in which no node is applied.
	maxTrialBytes   = 4 << 10
	maxMissingBytes = 4 << 10

	// maxNamed bounds the nodes that one sentence names.
	maxNamed = 10
)

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
