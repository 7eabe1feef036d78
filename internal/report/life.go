package report

import (
	"fmt"
	"io"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/kubeclient"
)

// LifeEvent is something that happens to an agent itself. It is told on the Host, where there is one.
type LifeEvent struct {
	// Reason is API, like the reasons of checks.
	Reason string
	// Type is Normal or Warning, Action what the agent did.
	Type, Action string
	// Says is what it means, Do what to do.
	Says, Do string
}

// Events of an agent's life. None comes of itself: each has a start, a change of the configuration or a fault behind it.
var (
	AgentStarted       = LifeEvent{"AgentStarted", eventNormal, "Start", "an agent started and speaks for the node; the note has its version and way of running", "nothing; many in a row are an agent that crashes"}
	ConfigurationTaken = LifeEvent{"ConfigurationTaken", eventNormal, "Reconfigure", "another configuration is in force; the note has its generation and its file", "nothing, if it was meant"}
	StateLost          = LifeEvent{"StateLost", eventWarning, "StartOver", "what the agent remembered of its checks cannot be used: latched faults and holds are forgotten, and everything is looked at afresh", "see in the agent's log why; look whether a latched fault was repaired"}
	LatchedFaultLost   = LifeEvent{"LatchedFaultLost", eventWarning, "ForgetFault", "a fault that only a reboot clears is no longer shown, since its check was changed or taken out of the configuration", "repair what the note names, or reboot, unless the fault was never one"}
)

// LifeEvents are all of them.
func LifeEvents() []LifeEvent {
	return []LifeEvent{AgentStarted, ConfigurationTaken, StateLost, LatchedFaultLost}
}

// Life takes in that something happened to the agent. topic tells apart what of the same kind may wait beside each other;
// note is a sentence.
func (e *Events) Life(l LifeEvent, topic, note string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	about := subject{topic: l.Reason + " " + topic, life: true}
	e.forget(about)
	e.add(occasion{subject: about, event: kubeclient.Event{
		Type: l.Type, Reason: l.Reason, Action: l.Action, Note: shorten(health.Normalise(note), maxNote),
	}})
}

// DescribeLifeEvents writes them as a table of Markdown.
func DescribeLifeEvents(w io.Writer) error {
	if _, err := fmt.Fprint(w, "| Reason | Type | Means | What to do |\n|---|---|---|---|\n"); err != nil {
		return err
	}
	for _, l := range LifeEvents() {
		if _, err := fmt.Fprintf(w, "| `%s` | %s | %s | %s |\n", l.Reason, l.Type, l.Says, l.Do); err != nil {
			return err
		}
	}
	return nil
}
