package interrupts

import "time"

// Phase is how far a reboot has come.
type Phase string

const (
	// Intended : it is to be asked for.
	Intended Phase = "Intended"
	// Asked : logind was asked, or was about to be when the process died.
	Asked Phase = "Asked"
	// Done : the host has another boot ID.
	Done Phase = "Done"
	// Failed : it did not happen in time.
	Failed Phase = "Failed"
)

// Cause is who brought a reboot about.
type Cause string

const (
	// Ours : it followed our asking.
	Ours Cause = "Ours"
	// External : the host rebooted before we had asked, by a power cut, say. The request is fulfilled all the same.
	External Cause = "External"
)

// Reboot is the record of one request, durable at every change. The zero value is none.
type Reboot struct {
	// ID of the admission that it happens under.
	ID string `json:"id"`
	// BootID that the host had when it was intended.
	BootID string `json:"bootIDBefore"`
	Phase  Phase  `json:"phase"`
	Cause  Cause  `json:"cause,omitempty"`
	// Asks is how often logind was asked, and LastAsk when last.
	Asks    int           `json:"asks,omitempty"`
	LastAsk time.Duration `json:"lastAsk,omitempty"`
	// Began is when it was intended. Times are those since the boot, which no clock that is set can change, and which
	// mean nothing after the next one; by then it is proven.
	Began time.Duration `json:"began"`
	// Error is what logind answered last, when it refused.
	Error string `json:"error,omitempty"`
}

// Host is what can be seen of the host.
type Host struct {
	BootID string
	// Uptime is the time since the boot, suspended time included (CLOCK_BOOTTIME).
	Uptime time.Duration
	// ShuttingDown : systemd or logind are at it.
	ShuttingDown bool
}

// Request is a reboot that is wanted.
type Request struct {
	ID string
	// Limit is how long it may take from its intent to the shutdown.
	Limit time.Duration
}

// Act is what to do next.
type Act string

const (
	// Intend : store the record, then decide again.
	Intend Act = "Intend"
	// Ask : store the record, then ask logind.
	Ask Act = "Ask"
	// Await : nothing; decide again after a while, or when the host says that it shuts down.
	Await Act = "Await"
	// Report : it is over, one way or the other. Store the record if it changed; it is kept, so that the request is never
	// carried out again.
	Report Act = "Report"
)

const (
	// AskAgain is the time between two asks while nothing happens. A shutdown that was asked for is seen within seconds.
	AskAgain = 30 * time.Second
	// DefaultLimit bounds a reboot that has no limit of its own.
	DefaultLimit = 2 * time.Hour
)

// Next decides about a request from its record, which may be that of another, and from what can be seen of the host. It
// gives the record as it is to be stored.
func Next(record Reboot, want Request, host Host) (Reboot, Act) {
	if want.Limit <= 0 {
		want.Limit = DefaultLimit
	}
	switch {
	case record.ID != want.ID: // one that nobody wants any more is dropped
		return Reboot{ID: want.ID, BootID: host.BootID, Phase: Intended, Began: host.Uptime}, Intend
	case record.Phase == Done, record.Phase == Failed:
		return record, Report
	case record.BootID != host.BootID:
		record.Cause = External
		if record.Phase == Asked {
			record.Cause = Ours
		}
		record.Phase = Done
		return record, Report
	case host.ShuttingDown:
		return record, Await
	case host.Uptime-record.Began >= want.Limit:
		record.Phase = Failed
		return record, Report
	case record.Phase == Intended, host.Uptime-record.LastAsk >= AskAgain:
		record.Phase, record.Asks, record.LastAsk = Asked, record.Asks+1, host.Uptime
		return record, Ask
	}
	return record, Await
}
