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
	return memory{Confirmed: m.Confirmed, Attempted: attempted}
}

func memoryPath(stateDir string) string { return filepath.Join(stateDir, "lease-holder.json") }

func recall(stateDir string) (memory, error) {
	var m memory
	err := statefile.Read(memoryPath(stateDir), memoryFormat, &m)
	if statefile.Missing(err) {
		return memory{}, nil
	}
	return m, err
}

func remember(stateDir string, m memory) error {
	return statefile.Write(memoryPath(stateDir), memoryFormat, m)
}
