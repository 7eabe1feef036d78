package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/fettle-dev/fettle/test/machines"
)

// subject is a process that is measured. Its PID is that of this program's PID namespace.
type subject struct {
	name string
	pid  int
	proc procfs.Proc

	resident, anonymous []int64 // bytes, one for each sample
	began, ended        float64 // processor seconds
	threads, files      int     // at the last sample
	forks               int
}

// subjectOf finds the main process of a unit of a machine. PIDs there are of the machine's own namespace, so it is known
// by its innermost PID and its name.
func subjectOf(ctx context.Context, m *machines.Machine, name, unit string) (*subject, error) {
	inner, err := m.Exec(ctx, "systemctl", "show", "--property=MainPID", "--value", unit)
	if err != nil {
		return nil, err
	}
	statuses, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		return nil, err
	}
	for _, path := range statuses {
		content, err := os.ReadFile(path)
		if err != nil {
			continue // it ended meanwhile
		}
		ids := strings.Fields(field(string(content), "NSpid:"))
		if field(string(content), "Name:") != name || len(ids) < 2 || ids[len(ids)-1] != strings.TrimSpace(inner) {
			continue
		}
		pid, err := strconv.Atoi(ids[0])
		if err != nil {
			return nil, err
		}
		proc, err := procfs.NewProc(pid)
		return &subject{name: name, pid: pid, proc: proc}, err
	}
	return nil, fmt.Errorf("unit %s has no process %s with PID %s", unit, name, strings.TrimSpace(inner))
}

func field(status, name string) string {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, name); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func (s *subject) begin() error {
	stat, err := s.proc.Stat()
	s.began = stat.CPUTime()
	return err
}

func (s *subject) sample() error {
	stat, err := s.proc.Stat()
	if err != nil {
		return fmt.Errorf("%s is gone: %w", s.name, err)
	}
	memory, err := s.proc.ProcSMapsRollup()
	if err != nil {
		return err
	}
	status, err := s.proc.NewStatus()
	if err != nil {
		return err
	}
	s.ended, s.threads = stat.CPUTime(), stat.NumThreads
	s.resident = append(s.resident, int64(memory.Rss))
	s.anonymous = append(s.anonymous, int64(status.RssAnon))
	s.files, err = s.proc.FileDescriptorsLen()
	return err
}

func (s *subject) processor() time.Duration {
	return time.Duration((s.ended - s.began) * float64(time.Second))
}

func median(values []int64) int64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

func most(values []int64) int64 { return slices.Max(values) }
