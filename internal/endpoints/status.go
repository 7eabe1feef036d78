package endpoints

import "time"

// Status is everything there is to say of an agent at one moment. Its JSON form is documented in docs/standalone.md and
// stable: keys are added, never renamed, and a reader must not mind those it does not know.
type Status struct {
	// SaidAt is when this was said, by the machine's clock.
	SaidAt        time.Time     `json:"saidAt"`
	Agent         Agent         `json:"agent"`
	Configuration Configuration `json:"configuration"`
	Health        Health        `json:"health"`
	// Cluster is absent where none is configured.
	Cluster *Cluster `json:"cluster,omitempty"`
	// Credential is absent where there is none, or it never expires.
	Credential *Credential `json:"credential,omitempty"`
}

// Agent is who speaks.
type Agent struct {
	Version string `json:"version"`
	// ID is another one at each start.
	ID   string `json:"id"`
	Node string `json:"node"`
	// Mode is DaemonSet or Service.
	Mode      string    `json:"mode"`
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"startedAt"`
	// BootID is that of the machine's boot.
	BootID string `json:"bootID"`
	// PublicKey is what values for this agent are sealed to. Empty: none can be; the journal says why.
	PublicKey string `json:"publicKey,omitempty"`
	// Stalled says why the agent makes no progress; empty while it does.
	Stalled string `json:"stalled,omitempty"`
}

// Configuration is what the agent goes by.
type Configuration struct {
	// Path of the file; empty: there is none.
	Path string `json:"path,omitempty"`
	// Hash of what is in force.
	Hash string `json:"hash,omitempty"`
	// Generation counts configurations that this process took, from 1.
	Generation uint64    `json:"generation"`
	LoadedAt   time.Time `json:"loadedAt,omitzero"`
	// Fault says why the newest configuration is not in force, and what is instead. Empty: it is.
	Fault string `json:"fault,omitempty"`
	// RestartNeeded names keys whose new values only another start takes up.
	RestartNeeded []string `json:"restartNeeded,omitempty"`
}

// Health is what was found on the machine.
type Health struct {
	// Decided is true once every check has come to a verdict. Before that, nothing is published.
	Decided bool `json:"decided"`
	// Status is Healthy, Degraded, Unhealthy or Unknown.
	Status string `json:"status"`
	// Reason is that of the worst check; empty when all are well.
	Reason     string      `json:"reason,omitempty"`
	Since      time.Time   `json:"since,omitzero"`
	Counts     Counts      `json:"counts"`
	Conditions []Condition `json:"conditions"`
	// Pending are types of conditions that are not decided yet: what the Node says of them stays.
	Pending []string `json:"pending,omitempty"`
	Checks  []Check  `json:"checks"`
}

// Counts counts checks by verdict.
type Counts struct {
	OK            int `json:"ok"`
	Degraded      int `json:"degraded"`
	Fatal         int `json:"fatal"`
	Unknown       int `json:"unknown"`
	NotApplicable int `json:"notApplicable"`
}

// Condition is one condition as it is, or would be, published.
type Condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

// Check is where one check stands.
type Check struct {
	Name      string `json:"name"`
	Condition string `json:"condition"`
	// Verdict is ok, degraded, fatal, unknown or notApplicable.
	Verdict string    `json:"verdict"`
	Reason  string    `json:"reason"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	// LastLook is when a look last came to an end; absent before the first.
	LastLook time.Time `json:"lastLook,omitzero"`
	// TookSeconds is how long that look took.
	TookSeconds float64 `json:"tookSeconds,omitempty"`
	DryRun      bool    `json:"dryRun,omitempty"`
}

// Cluster is how the agent stands with the API server.
type Cluster struct {
	// Joined is true while there is an API server to speak to.
	Joined bool   `json:"joined"`
	Server string `json:"server,omitempty"`
	// Origin says where the server's address is from.
	Origin string `json:"origin,omitempty"`
	Lease  Lease  `json:"lease"`
	// Publishing is how what was found gets to the Node.
	Publishing Publishing `json:"publishing"`
	// LastApplied is when conditions were last written; absent: not by this process.
	LastApplied time.Time `json:"lastApplied,omitzero"`
}

// Lease is the sign of life.
type Lease struct {
	Held bool `json:"held"`
	// State is a word of package heartbeat, e.g. Holding or IdentityConflict.
	State string `json:"state"`
	// Detail says why it is not held.
	Detail string `json:"detail,omitempty"`
	// RenewedAt is when it was last renewed; absent: not since the cluster was joined.
	RenewedAt time.Time `json:"renewedAt,omitzero"`
}

// Publishing is whether the latest is published.
type Publishing struct {
	Current bool   `json:"current"`
	Detail  string `json:"detail,omitempty"`
}

// Credential is what the agent shows the API server.
type Credential struct {
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	// Renews is true while the agent renews it by itself; else Detail says why not.
	Renews bool   `json:"renews"`
	Detail string `json:"detail,omitempty"`
	// RenewAt is when it is to be renewed next, RenewedAt when this process last did; absent: not yet.
	RenewAt   time.Time `json:"renewAt,omitzero"`
	RenewedAt time.Time `json:"renewedAt,omitzero"`
	// Fault says that it is refused, or could not be renewed; empty: nothing is wrong.
	Fault string `json:"fault,omitempty"`
}

// Counters count from the start of the process, or from when the cluster was joined, which is anew now and then.
type Counters struct {
	LeaseRenewals, LeaseFailures uint64
	// Calls to the API server.
	Calls                     []Calls
	EventsSent, EventsDropped uint64
}

// Calls counts calls to the API server for one purpose by how they ended.
type Calls struct {
	// Purpose is heartbeat, report or events.
	Purpose                                          string
	Answered, Refused, Throttled, Failed, Unanswered uint64
}

// Source tells what the Board does not know. Its methods are called from any goroutine and must neither block nor take
// locks that are held over input or output.
type Source interface {
	// Stalled says why the agent makes no progress; empty while it does.
	Stalled() string
	Configuration() Configuration
	// Cluster is nil where none is configured.
	Cluster() *Cluster
	// Credential is nil where there is none, or it never expires.
	Credential() *Credential
	Counters() Counters
}
