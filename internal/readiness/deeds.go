package readiness

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fettle-dev/fettle/internal/taints"
)

// tellPause is the least time between two events about a rule that say the same of more nodes: a fleet that is tainted at
// once is one event, not thousands, and what flaps is told six times a minute.
const tellPause = 10 * time.Second

// deeds are what was done to nodes on account of a rule since it was told.
type deeds map[deedID]*deed

type deedID struct {
	// reason of the Note.
	reason string
	// taint that it was done to, if any.
	taint string
}

type deed struct {
	// nodes are the first of them, and count is how many there are in all.
	nodes []string
	count int
	// told is when it was told last.
	told time.Time
}

// saysOfRule are the words about many nodes: the taint, how many nodes, and their names.
var saysOfRule = map[string]string{
	NoteTaintAdded:         "added taint %s to %s: %s",
	NoteTaintRemoved:       "removed taint %s from %s: %s",
	NoteTaintAdopted:       "adopted taint %s on %s: %s",
	NoteBootstrapCompleted: "bootstrap%s completed on %s: %s",
}

func (d deeds) add(id deedID, node string) {
	of := d[id]
	if of == nil {
		of = &deed{}
		d[id] = of
	}
	if len(of.nodes) < maxNamed {
		of.nodes = append(of.nodes, node)
	}
	of.count++
}

// telling is a sum of deeds that is due to be told.
type telling struct{ reason, words string }

// tell gives what is due to be told, and when more will be; zero for never.
func (d deeds) tell(now time.Time) (due []telling, next time.Time) {
	for id, of := range d {
		since := now.Sub(of.told)
		switch {
		case of.count == 0 && since >= tellPause:
			delete(d, id)
		case of.count > 0 && since >= tellPause:
			slices.Sort(of.nodes)
			due = append(due, telling{id.reason, fmt.Sprintf(saysOfRule[id.reason], id.taint, countedNodes(of.count), named(of.nodes, of.count))})
			*of = deed{told: now}
		case of.count > 0:
			if at := of.told.Add(tellPause); next.IsZero() || at.Before(next) {
				next = at
			}
		}
	}
	slices.SortFunc(due, func(a, b telling) int { return cmp.Or(cmp.Compare(a.reason, b.reason), cmp.Compare(a.words, b.words)) })
	return due, next
}

// done takes down what a judgement changed on a node, for the rules on whose account.
func (s *Standings) done(j Judgement, completed []*taints.Rule) (anything bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	add := func(rule types.UID, id deedID) {
		if j.Rules.Get(rule) != nil { // one that is gone is told nothing
			s.rollOf(rule).deeds.add(id, j.Node.Name)
			anything = true
		}
	}
	for _, change := range j.Decision.Changes {
		for _, rule := range change.Rules {
			add(rule, deedID{noteOf[change.Action], change.Taint.String()})
		}
	}
	for _, rule := range completed {
		add(rule.UID, deedID{reason: NoteBootstrapCompleted})
	}
	return anything
}

// tell gives what was done on account of a rule and is due to be told, and when more will be; zero for never.
func (s *Standings) tell(rule types.UID, now time.Time) (due []telling, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.byRule[rule]; r != nil {
		return r.deeds.tell(now)
	}
	return nil, time.Time{}
}
