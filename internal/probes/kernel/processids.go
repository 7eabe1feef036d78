package kernel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/reasons"
)

// Reasons of process-ids.
const (
	ProcessIDsExhausted  = "ProcessIDsExhausted"
	ProcessIDsLow        = "ProcessIDsLow"
	ProcessIDsUnreadable = "ProcessIDsUnreadable"
)

// processIDsReasons are API.
var processIDsReasons = reasons.Table{
	{Name: ProcessIDsExhausted, Severity: reasons.Fatal, Says: "hardly any process or thread can be started", Do: "find what has so many threads: ps -eLf, or pids.current below /sys/fs/cgroup; then end it or raise the limit that the message names"},
	{Name: ProcessIDsLow, Severity: reasons.Degraded, Says: "few more processes and threads can be started", Do: "find what has so many threads before there are none left: ps -eLf, or pids.current below /sys/fs/cgroup"},
	{Name: ProcessIDsUnreadable, Severity: reasons.Unknown, Says: "it could not be read how many processes there are and may be", Do: "see the message; the agent needs the machine's /proc and /sys"},
}

// ProcessIDsOptions configure process-ids. A bound of 0 is off.
type ProcessIDsOptions struct {
	DegradedPercent int      `key:"degradedPercent" doc:"degraded from this share of the limit on; 0: off" min:"0" max:"100"`
	FatalPercent    int      `key:"fatalPercent" doc:"fatal from this share of the limit on; 0: off" min:"0" max:"100"`
	Cgroups         []string `key:"cgroups" doc:"control groups whose own limit (pids.max) is judged where they have one, by their path below the root of the hierarchy"`
}

func (o ProcessIDsOptions) bounds() bounds {
	return bounds{low: o.DegradedPercent, exhausted: o.FatalPercent}
}

// Validate reports bounds out of order, and paths that lead out of the hierarchy.
func (o ProcessIDsOptions) Validate(fault func(what, allowed string, keys ...string)) {
	o.bounds().validate(fault)
	for i, group := range o.Cgroups {
		if group == "" || path.Clean("/"+group) != "/"+group {
			fault(fmt.Sprintf("%q is not a path of a control group", group), `a path without ".." and without a slash at its ends, e.g. kubepods.slice`, fmt.Sprintf("cgroups[%d]", i))
		}
	}
}

// ProcessIDs is the check "process-ids": can processes and threads still be started?
//
// Each thread takes an ID. Their number is the second half of the fourth field of /proc/loadavg, for the whole machine;
// what it may be is the smaller of kernel.pid_max and kernel.threads-max. From Linux 6.14 on each PID namespace has a
// pid_max of its own, and a container that is not in the machine's (hostPID) sees only its own; there threads-max and the
// control groups are what is left to judge by.
//
// The kubelet sets pids.max on the group of all pods when it reserves process IDs: then pods can be at their limit while
// the machine is not. Both versions of control groups are read.
var ProcessIDs = probes.Define(probes.Kind{
	Name:        "process-ids",
	Condition:   "fettle.dev/KernelReady",
	Description: "Compares the number of threads with the kernel's limits, and that of control groups with theirs.",
	Reasons:     processIDsReasons,
	Interval:    30 * time.Second,
	Timeout:     2 * time.Second,
	Thresholds:  health.Thresholds{Failure: 2, Success: 2},
}, func() ProcessIDsOptions {
	return ProcessIDsOptions{DegradedPercent: 80, FatalPercent: 95, Cgroups: []string{"kubepods.slice", "kubepods", "system.slice"}}
}, func(env probes.Env, o ProcessIDsOptions) probes.Probe {
	return &processIDsLook{host: env.Host, ProcessIDsOptions: o, levels: map[string]level{}}
})

type processIDsLook struct {
	host *hostfs.Root
	ProcessIDsOptions
	levels map[string]level // at the look before, by limit
}

// taken is how many process IDs of one limit are in use.
type taken struct {
	fill
	// limit in words, e.g. "kernel.pid_max".
	name string
}

func (l *processIDsLook) Run(context.Context) health.Result {
	all, err := l.read()
	if err != nil {
		return probes.Because(processIDsReasons, ProcessIDsUnreadable, "%v", err)
	}
	return l.judge(all)
}

func (l *processIDsLook) read() ([]taken, error) {
	machine, err := readThreads(proc{l.host})
	if err != nil {
		return nil, err
	}
	all := []taken{machine}
	for _, group := range l.Cgroups {
		used, limit, err := readPids(l.host, group)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // no such group, or none that counts process IDs
		case err != nil:
			return nil, err
		}
		all = append(all, taken{fill: fill{used, limit}, name: "pids.max of the control group " + group})
	}
	return all, nil
}

func readThreads(p proc) (taken, error) {
	text, err := p.read("loadavg")
	if err != nil {
		return taken{}, err
	}
	threads, err := threadsFrom(text)
	if err != nil {
		return taken{}, err
	}
	pidMax, err := p.number("sys/kernel/pid_max")
	if err != nil {
		return taken{}, err
	}
	threadsMax, err := p.number("sys/kernel/threads-max")
	if err != nil {
		return taken{}, err
	}
	if threadsMax < pidMax {
		return taken{fill: fill{threads, threadsMax}, name: "kernel.threads-max"}, nil
	}
	return taken{fill: fill{threads, pidMax}, name: "kernel.pid_max"}, nil
}

// threadsFrom reads "running/all" from the line of /proc/loadavg.
func threadsFrom(line string) (uint64, error) {
	fields := strings.Fields(line)
	if len(fields) == 5 {
		if _, all, found := strings.Cut(fields[3], "/"); found {
			return parse("/proc/loadavg", all)
		}
	}
	return 0, fmt.Errorf("/proc/loadavg: %q is not as it should be", line)
}

// readPids reads how many threads a control group has and may have; a limit of 0 is none.
func readPids(host *hostfs.Root, group string) (used, limit uint64, err error) {
	read := func(name string) (text, file string, err error) {
		for _, hierarchy := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/pids"} { // version 2, then 1
			file = path.Join(hierarchy, group, name)
			var content []byte
			if content, err = host.ReadFile(file); !errors.Is(err, fs.ErrNotExist) {
				return strings.TrimSpace(string(content)), file, err
			}
		}
		return "", file, err
	}
	text, file, err := read("pids.max")
	if err != nil || text == "max" {
		return 0, 0, err
	}
	if limit, err = parse(file, text); err != nil {
		return 0, 0, err
	}
	if text, file, err = read("pids.current"); err != nil {
		return 0, 0, err
	}
	used, err = parse(file, text)
	return used, limit, err
}

// judge gives the worst level of all limits.
func (l *processIDsLook) judge(all []taken) health.Result {
	names := map[level][]string{}
	for _, t := range all {
		at := l.bounds().judge(l.levels[t.name], t.fill)
		l.levels[t.name] = at
		names[at] = append(names[at], t.name)
	}
	switch {
	case len(names[exhausted]) > 0:
		return probes.Because(processIDsReasons, ProcessIDsExhausted, "%d%% or more of %s in use", l.FatalPercent, strings.Join(names[exhausted], " and of "))
	case len(names[low]) > 0:
		return probes.Because(processIDsReasons, ProcessIDsLow, "%d%% or more of %s in use", l.DegradedPercent, strings.Join(names[low], " and of "))
	}
	return probes.OK("processes and threads can be started")
}
