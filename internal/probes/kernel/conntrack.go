package kernel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/prometheus/procfs"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/reasons"
)

// Reasons of conntrack.
const (
	ConntrackExhausted  = "ConntrackExhausted"
	ConntrackLow        = "ConntrackLow"
	ConntrackDropping   = "ConntrackDropping"
	ConntrackUnreadable = "ConntrackUnreadable"
)

// conntrackReasons are API.
var conntrackReasons = reasons.Table{
	{Name: ConntrackExhausted, Severity: reasons.Fatal, Says: "the table of tracked connections is full or nearly so; new connections are dropped when it is", Do: "raise net.netfilter.nf_conntrack_max (and conntrack.maxPerCore of kube-proxy), or find who opens so many connections: conntrack -L"},
	{Name: ConntrackLow, Severity: reasons.Degraded, Says: "the table of tracked connections fills up", Do: "raise net.netfilter.nf_conntrack_max (and conntrack.maxPerCore of kube-proxy) before new connections are dropped"},
	{Name: ConntrackDropping, Severity: reasons.Degraded, Says: "packets are dropped because their connections cannot be entered into the table", Do: "see the columns drop and insert_failed of conntrack -S; a full table shows in the kernel's log, failed inserts alone come from connections that collide, often of DNS over UDP"},
	{Name: ConntrackUnreadable, Severity: reasons.Unknown, Says: "the table of tracked connections could not be looked at", Do: "see the message; the agent needs the machine's /proc and network namespace"},
}

// ConntrackOptions configure conntrack. A bound of 0 is off.
type ConntrackOptions struct {
	DegradedPercent int `key:"degradedPercent" doc:"degraded from this share of nf_conntrack_max on; 0: off" min:"0" max:"100"`
	FatalPercent    int `key:"fatalPercent" doc:"fatal from this share of nf_conntrack_max on; 0: off" min:"0" max:"100"`
	DropsPerMinute  int `key:"dropsPerMinute" doc:"degraded while so many packets or more are dropped in a minute; 0: off" min:"0"`
}

func (o ConntrackOptions) bounds() bounds {
	return bounds{low: o.DegradedPercent, exhausted: o.FatalPercent}
}

// Validate reports bounds out of order.
func (o ConntrackOptions) Validate(fault func(what, allowed string, keys ...string)) {
	o.bounds().validate(fault)
}

// Conntrack is the check "conntrack": can new connections be tracked?
//
// It reads nf_conntrack_count and nf_conntrack_max below /proc/sys/net/netfilter, and from /proc/net/stat/nf_conntrack
// what every processor dropped for want of room (drop) or could not enter (insert_failed), for the agent's network
// namespace, which must be the machine's (hostNetwork). Where the module is not loaded nothing is tracked, and the check
// does not apply. A nf_conntrack_max of 0 is no limit.
//
// A packet that could not be entered may be counted in both columns; the larger growth counts.
var Conntrack = probes.Define(probes.Kind{
	Name:        "conntrack",
	Condition:   "fettle.dev/NetworkReady",
	Description: "Compares the number of tracked connections with their limit, and looks for packets that were dropped because of it.",
	Reasons:     conntrackReasons,
	Interval:    30 * time.Second,
	Timeout:     time.Second,
	Thresholds:  health.Thresholds{Failure: 3, Success: 3},
}, func() ConntrackOptions {
	return ConntrackOptions{DegradedPercent: 80, FatalPercent: 95, DropsPerMinute: 60}
}, func(env probes.Env, o ConntrackOptions) probes.Probe {
	return &conntrackLook{proc: proc{env.Host}, ConntrackOptions: o}
})

type conntrackLook struct {
	proc proc
	ConntrackOptions
	// Of the look before:
	level level
	drops drops
}

// drops are what each processor counted, and when.
type drops struct {
	at     time.Time
	counts []dropped
}

// dropped is one processor's counters. The kernel's are of 32 bits, and wrap around.
type dropped struct{ full, failed uint32 }

func (l *conntrackLook) Run(context.Context) health.Result {
	table, err := l.read()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return probes.NotApplicable("connections are not tracked: nf_conntrack is not loaded")
	case err != nil:
		return probes.Because(conntrackReasons, ConntrackUnreadable, "%v", err)
	}
	now, err := l.readDrops()
	if err != nil {
		return probes.Because(conntrackReasons, ConntrackUnreadable, "%v", err)
	}
	rate := now.since(l.drops)
	l.drops = now
	return l.judge(table, rate)
}

func (l *conntrackLook) read() (table fill, err error) {
	if table.used, err = l.proc.number("sys/net/netfilter/nf_conntrack_count"); err != nil {
		return fill{}, err
	}
	table.limit, err = l.proc.number("sys/net/netfilter/nf_conntrack_max")
	return table, err
}

// readDrops has nothing to tell where the kernel keeps no statistics (CONFIG_NF_CONNTRACK_PROCFS).
func (l *conntrackLook) readDrops() (drops, error) {
	now := drops{at: time.Now()}
	if l.DropsPerMinute == 0 {
		return now, nil
	}
	files, err := procfs.NewFS(l.proc.dir())
	if err != nil {
		return drops{}, fmt.Errorf("read the statistics of tracked connections: %w", err)
	}
	rows, err := files.ConntrackStat()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return now, nil
	case err != nil:
		return drops{}, fmt.Errorf("read the statistics of tracked connections: %w", err)
	}
	for _, r := range rows {
		now.counts = append(now.counts, dropped{full: uint32(r.Drop), failed: uint32(r.InsertFailed)})
	}
	return now, nil
}

// since gives packets dropped per minute since an earlier look, 0 where there is none to compare with.
func (d drops) since(before drops) float64 {
	elapsed := d.at.Sub(before.at)
	if len(before.counts) != len(d.counts) || elapsed <= 0 {
		return 0
	}
	var full, failed uint64
	for i, now := range d.counts {
		full += growth(before.counts[i].full, now.full)
		failed += growth(before.counts[i].failed, now.failed)
	}
	return float64(max(full, failed)) / elapsed.Minutes()
}

// growth of a counter that wraps around. One that went back began anew with its module.
func growth(before, now uint32) uint64 {
	if grown := now - before; grown < 1<<31 {
		return uint64(grown)
	}
	return 0
}

func (l *conntrackLook) judge(table fill, dropsPerMinute float64) health.Result {
	l.level = l.bounds().judge(l.level, table)
	switch {
	case l.level == exhausted:
		return probes.Because(conntrackReasons, ConntrackExhausted, "%d%% or more of nf_conntrack_max in use", l.FatalPercent)
	case l.DropsPerMinute > 0 && dropsPerMinute >= float64(l.DropsPerMinute):
		return probes.Because(conntrackReasons, ConntrackDropping, "%d packets a minute or more are dropped", l.DropsPerMinute)
	case l.level == low:
		return probes.Because(conntrackReasons, ConntrackLow, "%d%% or more of nf_conntrack_max in use", l.DegradedPercent)
	}
	return probes.OK("connections can be tracked")
}
