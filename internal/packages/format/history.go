package format

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Uninstalled stands in a history in place of a version.
const Uninstalled = "uninstalled"

// Unknown stands for the version before when a host has no history of the package.
const Unknown = "unknown"

// MaxHistory is how many entries of a history are kept.
const MaxHistory = 100

// History is which versions of a package a host had, newest first.
type History struct {
	Current string  `json:"current-version"`
	Entries []Entry `json:"history"`
}

// Entry is a version, or Uninstalled, and since when.
type Entry struct {
	Version string `json:"version"`
	// Time is kept as it was written: other agents wrote other forms of ISO 8601.
	Time string `json:"time"`
}

// HistoryFile is the name of a package's history below the folder of histories.
func (p *Package) HistoryFile() string { return p.Name + ".json" }

// ReadHistory reads a history file. An error says that it is none.
func ReadHistory(content []byte) (History, error) {
	var h History
	if err := json.Unmarshal(content, &h); err != nil {
		return History{}, fmt.Errorf("read history: %w", err)
	}
	if h.Current == "" {
		return History{}, fmt.Errorf("read history: current-version is missing")
	}
	return h, nil
}

// Record puts a version on top.
func (h History) Record(version string, at time.Time) History {
	entries := append([]Entry{{Version: version, Time: isoformat(at.UTC(), "+00:00")}}, h.Entries...)
	return History{Current: version, Entries: entries[:min(len(entries), MaxHistory)]}
}

// Encode gives the file's content, byte for byte as Python writes it.
func (h History) Encode() []byte {
	entries := make([]string, len(h.Entries))
	for i, e := range h.Entries {
		entries[i] = fmt.Sprintf(`{"version": %s, "time": %s}`, jsonText(e.Version), jsonText(e.Time))
	}
	return fmt.Appendf(nil, `{"current-version": %s, "history": [%s]}`, jsonText(h.Current), strings.Join(entries, ", "))
}

func jsonText(s string) string {
	text, err := json.Marshal(s)
	if err != nil { // a text: cannot happen
		panic(err)
	}
	return string(text)
}

// Previous is the version that an upgrade comes from.
func (h History) Previous() string {
	if h.Current == "" {
		return Unknown
	}
	return h.Current
}
