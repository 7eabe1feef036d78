package controller

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fettle-dev/fettle/internal/events"
)

// silenceNote is an event about silence. Names are API: alerts match on them.
type silenceNote struct {
	reason, action, kind string
	// says is the note, or what it is about where the note has numbers and names.
	says string
}

// Events of silence.
var (
	noteSilent   = silenceNote{"AgentSilent", "SetConditionsUnknown", corev1.EventTypeWarning, silentMessage}
	noteRebooted = silenceNote{"AgentBehindBoot", "SetConditionsUnknown", corev1.EventTypeNormal, rebootedMessage}
	noteBack     = silenceNote{"AgentBack", "HearAgent", corev1.EventTypeNormal, "the node agent renews its lease again"}

	noteVerdict    = silenceNote{"FleetVerdictChanged", "JudgeFleet", corev1.EventTypeWarning, "the verdict on the fleet, the one before, and why"}
	noteOverridden = silenceNote{"FleetVerdictOverridden", "OverrideVerdict", corev1.EventTypeWarning, "the verdict that a person has set, until when, and the reason given"}
	noteOverEnded  = silenceNote{"FleetOverrideEnded", "EndOverride", corev1.EventTypeNormal, "the override has ended, and the verdict that holds now"}
)

// silenceNotes are all of them; docs/liveness.md lists them.
var silenceNotes = []silenceNote{noteSilent, noteRebooted, noteBack, noteVerdict, noteOverridden, noteOverEnded}

func (s silenceNote) about(object corev1.ObjectReference, note string) events.Event {
	return events.Event{Regarding: object, Type: s.kind, Reason: s.reason, Action: s.action, Note: note, At: time.Now()}
}
