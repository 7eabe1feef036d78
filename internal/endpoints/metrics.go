package endpoints

import (
	"runtime"
	"time"

	"github.com/prometheus/procfs"
)

// metric is one metric of the agent. Names, types and labels are API: dashboards and alerts match on them.
type metric struct {
	name   string
	kind   kind
	labels []string
	help   string
	// read emits the metric's values, one for each set of labels; nil for the histogram.
	read func(view, emit)
}

type kind string

const (
	gauge     kind = "gauge"
	counter   kind = "counter"
	histogram kind = "histogram"
)

// emit takes one value with the values of its labels.
type emit func(value float64, labels ...string)

// view is what one scrape shows.
type view struct {
	status   Status
	counters Counters
	board    *Board
	// process is what the kernel says of this process; nil and 0 where /proc does not tell.
	process *procfs.ProcStat
	files   int
}

// lookAtProcess fills in what the kernel says. The metrics go without what it does not.
func (v *view) lookAtProcess() {
	self, err := procfs.Self()
	if err != nil {
		return
	}
	if stat, err := self.Stat(); err == nil {
		v.process = &stat
	}
	if files, err := self.FileDescriptorsLen(); err == nil {
		v.files = files
	}
}

// metrics are all there are. No label carries a message, an error or anything else that machines can make up.
var metrics = []metric{
	{"fettle_agent_info", gauge, []string{"version", "node", "mode", "boot_id"}, "Who is speaking. Always 1.", func(v view, put emit) {
		put(1, v.status.Agent.Version, v.status.Agent.Node, v.status.Agent.Mode, v.status.Agent.BootID)
	}},
	{"fettle_agent_stalled", gauge, nil, "1 while the agent makes no progress: checks are not looked at.", func(v view, put emit) {
		put(is(v.status.Agent.Stalled != ""))
	}},
	{"fettle_decided", gauge, nil, "1 once every check has come to a verdict.", func(v view, put emit) {
		put(is(v.status.Health.Decided))
	}},
	{"fettle_check_status", gauge, []string{"check", "condition", "status"}, "1 for the verdict that the check has after its thresholds, 0 for the others: ok, degraded, fatal, unknown, notApplicable. Checks in dry run are included.", readCheckStatus},
	{"fettle_check_dry_run", gauge, []string{"check"}, "1 for a check that is looked at and counts for nothing.", func(v view, put emit) {
		for _, c := range v.status.Health.Checks {
			put(is(c.DryRun), c.Name)
		}
	}},
	{"fettle_check_last_look_timestamp_seconds", gauge, []string{"check"}, "When a look at the check last came to an end, by the machine's clock. Absent before the first.", func(v view, put emit) {
		for _, c := range v.status.Health.Checks {
			if !c.LastLook.IsZero() {
				put(seconds(c.LastLook), c.Name)
			}
		}
	}},
	{"fettle_check_duration_seconds", histogram, []string{"check"}, "How long looks at the check took, those that ran into their deadline included.", nil},
	{"fettle_check_looks_total", counter, []string{"check", "result"}, "Looks at the check by what each came to by itself, before thresholds.", func(v view, put emit) {
		v.board.counted(func(check string, t *tally) {
			for _, verdict := range verdicts {
				put(float64(t.looks[verdict]), check, string(verdict))
			}
		})
	}},
	{"fettle_check_transitions_total", counter, []string{"check"}, "Changes of the check's verdict after thresholds.", func(v view, put emit) {
		v.board.counted(func(check string, t *tally) { put(float64(t.transitions), check) })
	}},
	{"fettle_condition_status", gauge, []string{"type", "status"}, "1 for the status that the condition has, 0 for the others: True, False, Unknown. True is good.", readConditionStatus},
	{"fettle_config_valid", gauge, nil, "0 while the newest configuration is refused and another is in force.", func(v view, put emit) {
		put(is(v.status.Configuration.Fault == ""))
	}},
	{"fettle_config_generation", gauge, nil, "Number of the configuration in force, from 1 at the start of the process.", func(v view, put emit) {
		put(float64(v.status.Configuration.Generation))
	}},
	{"fettle_config_loaded_timestamp_seconds", gauge, nil, "When the configuration in force was taken.", func(v view, put emit) {
		if at := v.status.Configuration.LoadedAt; !at.IsZero() {
			put(seconds(at))
		}
	}},
	{"fettle_config_restart_needed", gauge, nil, "1 while a value in the configuration is one that only another start takes up.", func(v view, put emit) {
		put(is(len(v.status.Configuration.RestartNeeded) > 0))
	}},
	{"fettle_cluster_joined", gauge, nil, "1 while there is an API server to speak to. Absent where no cluster is configured, like all of fettle_lease, fettle_publish, fettle_api and fettle_events.", func(v view, put emit) {
		if c := v.status.Cluster; c != nil {
			put(is(c.Joined))
		}
	}},
	{"fettle_lease_held", gauge, nil, "1 while this agent holds the Lease of its node.", func(v view, put emit) {
		if c := v.status.Cluster; c != nil {
			put(is(c.Lease.Held))
		}
	}},
	{"fettle_lease_renewed_timestamp_seconds", gauge, nil, "When the Lease was last renewed. Absent before.", func(v view, put emit) {
		if c := v.status.Cluster; c != nil && !c.Lease.RenewedAt.IsZero() {
			put(seconds(c.Lease.RenewedAt))
		}
	}},
	{"fettle_lease_renewals_total", counter, nil, "Renewals of the Lease that were stored.", func(v view, put emit) {
		if v.status.Cluster != nil {
			put(float64(v.counters.LeaseRenewals))
		}
	}},
	{"fettle_lease_failures_total", counter, nil, "Renewals of the Lease that were not stored.", func(v view, put emit) {
		if v.status.Cluster != nil {
			put(float64(v.counters.LeaseFailures))
		}
	}},
	{"fettle_publish_current", gauge, nil, "1 while the latest that was found is published.", func(v view, put emit) {
		if c := v.status.Cluster; c != nil {
			put(is(c.Publishing.Current))
		}
	}},
	{"fettle_publish_last_applied_timestamp_seconds", gauge, nil, "When conditions were last written by this process. Absent before.", func(v view, put emit) {
		if c := v.status.Cluster; c != nil && !c.LastApplied.IsZero() {
			put(seconds(c.LastApplied))
		}
	}},
	{"fettle_api_calls_total", counter, []string{"purpose", "result"}, "Calls to the API server, by what for (heartbeat, report, events) and how they ended: answered, refused (4xx, conflicts included), throttled (429), failed (5xx), unanswered.", readCalls},
	{"fettle_events_sent_total", counter, nil, "Events that were sent.", func(v view, put emit) {
		if v.status.Cluster != nil {
			put(float64(v.counters.EventsSent))
		}
	}},
	{"fettle_events_dropped_total", counter, nil, "Events that were not sent: too many waited, or the API server refused them.", func(v view, put emit) {
		if v.status.Cluster != nil {
			put(float64(v.counters.EventsDropped))
		}
	}},
	{"fettle_credential_expiry_timestamp_seconds", gauge, nil, "When the agent's credential expires. Absent where it does not.", func(v view, put emit) {
		if c := v.status.Credential; c != nil && !c.ExpiresAt.IsZero() {
			put(seconds(c.ExpiresAt))
		}
	}},
	{"fettle_credential_valid", gauge, nil, "0 while the agent's credential is refused or could not be renewed. Absent where there is none.", func(v view, put emit) {
		if c := v.status.Credential; c != nil {
			put(is(c.Fault == ""))
		}
	}},
	{"go_goroutines", gauge, nil, "Number of goroutines that currently exist.", func(_ view, put emit) {
		put(float64(runtime.NumGoroutine()))
	}},
	{"go_threads", gauge, nil, "Number of threads of the process.", func(v view, put emit) {
		if p := v.process; p != nil {
			put(float64(p.NumThreads))
		}
	}},
	{"process_cpu_seconds_total", counter, nil, "Total user and system CPU time spent in seconds, without children.", func(v view, put emit) {
		if p := v.process; p != nil {
			put(p.CPUTime())
		}
	}},
	{"process_resident_memory_bytes", gauge, nil, "Resident memory size in bytes.", func(v view, put emit) {
		if p := v.process; p != nil {
			put(float64(p.ResidentMemory()))
		}
	}},
	{"process_open_fds", gauge, nil, "Number of open file descriptors.", func(v view, put emit) {
		if v.files > 0 {
			put(float64(v.files))
		}
	}},
	{"process_start_time_seconds", gauge, nil, "When the process started, in seconds since the epoch.", func(v view, put emit) {
		put(seconds(v.status.Agent.StartedAt))
	}},
}

func readCheckStatus(v view, put emit) {
	for _, c := range v.status.Health.Checks {
		for _, verdict := range verdicts {
			put(is(c.Verdict == string(verdict)), c.Name, c.Condition, string(verdict))
		}
	}
}

func readCalls(v view, put emit) {
	if v.status.Cluster == nil {
		return
	}
	for _, c := range v.counters.Calls {
		put(float64(c.Answered), c.Purpose, "answered")
		put(float64(c.Refused), c.Purpose, "refused")
		put(float64(c.Throttled), c.Purpose, "throttled")
		put(float64(c.Failed), c.Purpose, "failed")
		put(float64(c.Unanswered), c.Purpose, "unanswered")
	}
}

func readConditionStatus(v view, put emit) {
	for _, c := range v.status.Health.Conditions {
		for _, status := range []string{"True", "False", "Unknown"} {
			put(is(c.Status == status), c.Type, status)
		}
	}
}

func is(holds bool) float64 {
	if holds {
		return 1
	}
	return 0
}

func seconds(at time.Time) float64 { return float64(at.UnixMilli()) / 1000 }
