package fleet

import "time"

// Report is the verdict on the fleet with the numbers behind it, for people and for whatever takes nodes away.
type Report struct {
	// Verdict is the one in force; Computed the one without an override.
	Verdict, Computed Verdict
	// Since is when Verdict came into force, by the controller's clock.
	Since time.Time
	// Reason of Computed, one of Reasons, and Message with its numbers.
	Reason, Message string
	// Policy that the verdict was made by, and the Override that is in force; the zero value for none.
	Policy   Policy
	Override Override

	// Agents that should be heard; of them Stale have let their lease run out, and Waiting would be Silent if it were acted on.
	Agents, Stale, Waiting int
	// New silences were acted on within the window.
	New int
	// Silent agents are known to be, Away on purpose, and NeverReported never appeared. They count for nothing in Agents.
	Silent, Away, NeverReported int

	// CanaryAge is how old the newest renewal of the controller's own lease is that came through its watch.
	CanaryAge time.Duration
}
