package heartbeat

import (
	"path/filepath"
	"slices"

	"github.com/fettle-dev/fettle/internal/statefile"
)

// memoryFormat is the number of the format of memory on disk.
const memoryFormat = 1

// maxAttempted bounds what a machine remembers that crashes at every start.
const maxAttempted = 8

// memory is what must be known after a crash to recognise our own Lease. Attempted is written before an identity is
// first sent to the API server and Confirmed after it was stored, so that whichever of them the Lease carries when the
// process dies, the next one finds it here.
type memory struct {
	// Node is the name that the identities go with. A machine that was renamed has no past under its new name: whoever
	// holds that Lease is somebody else. Empty in what agents wrote that did not know it.
	Node      string   `json:"node,omitempty"`
	Confirmed string   `json:"confirmed,omitempty"`
	Attempted []string `json:"attempted,omitempty"`
}

func (m memory) predecessors() []string {
	if m.Confirmed == "" {
		return m.Attempted
	}
	return append([]string{m.Confirmed}, m.Attempted...)
}

func (m memory) attempting(holder string) memory {
	attempted := append(slices.Clone(m.Attempted), holder)
	if over := len(attempted) - maxAttempted; over > 0 {
		attempted = attempted[over:]
	}
	return memory{Node: m.Node, Confirmed: m.Confirmed, Attempted: attempted}
}

func memoryPath(stateDir string) string { return filepath.Join(stateDir, "lease-holder.json") }

// recall reads what is remembered of a node of that name.
func recall(stateDir, node string) (memory, error) {
	m := memory{}
	err := statefile.Read(memoryPath(stateDir), memoryFormat, &m)
	if statefile.Missing(err) {
		err = nil
	}
	if err != nil || m.Node != "" && m.Node != node {
		m = memory{}
	}
	m.Node = node
	return m, err
}

// Predecessors are the identities under which earlier agents of this machine may hold the Lease of a node.
func Predecessors(stateDir, node string) ([]string, error) {
	m, err := recall(stateDir, node)
	return m.predecessors(), err
}

func remember(stateDir string, m memory) error {
	return statefile.Write(memoryPath(stateDir), memoryFormat, m)
}
