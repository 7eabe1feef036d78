package systemd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
)

// Service is a transient service that runs by itself until its command ends: it outlives whoever launched it. The zero
// value of a bound is none.
type Service struct {
	// Name with the suffix .service. A second one of the same name cannot be launched while the first is loaded.
	Name string
	// Argv is the command by its absolute path, and its arguments; no shell is involved.
	Argv        []string
	Description string
	// Limit bounds its run; StopLimit is the time between SIGTERM, which only the command is sent, and SIGKILL, which all
	// that it started are.
	Limit, StopLimit time.Duration
	// Fields are in every line that it writes to the journal. Names are of letters, digits and '_', in upper case.
	Fields map[string]string
	// Slice that it is in, with the suffix .slice.
	Slice string

	// CPUQuota is the CPU time that it may take in a second.
	CPUQuota time.Duration
	// CPUWeight is its share where CPU time is scarce, from 1 to 10000; systemd's default is 100.
	CPUWeight uint64
	// MemoryMax and MemoryLow are what it may take at most, and what is kept for it, in bytes.
	MemoryMax, MemoryLow uint64
}

// ErrExists says that a unit of the name is loaded already.
var ErrExists = errors.New("a unit of this name is loaded already")

// errUnitExists is systemd's name for that.
const errUnitExists = "org.freedesktop.systemd1.UnitExists"

// Launch starts a service and returns when its command was executed. ErrExists is no failure of a second try: the service
// of the first runs.
func (b *Bus) Launch(ctx context.Context, s Service) error {
	conn, err := b.connection(ctx)
	if err != nil {
		return err
	}
	ended := make(chan string, 1) // buffered: the connection's dispatcher sends while it holds a lock
	if _, err := conn.StartTransientUnitContext(ctx, s.Name, "fail", s.properties(), ended); err != nil {
		var answer godbus.Error
		if errors.As(err, &answer) && answer.Name == errUnitExists {
			return fmt.Errorf("launch %s: %w", s.Name, ErrExists)
		}
		return b.failed(conn, "launch "+s.Name, err)
	}
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		select {
		case job := <-ended:
			if job != "done" {
				return fmt.Errorf("launch %s: its start job ended as %s", s.Name, job)
			}
			return nil
		case <-ctx.Done():
			return fmt.Errorf("launch %s: %w", s.Name, ctx.Err())
		case <-poll.C:
			if !conn.Connected() {
				b.lost(conn)
				return fmt.Errorf("launch %s: %w", s.Name, ErrOutcomeUnknown)
			}
		}
	}
}

func (s Service) properties() []dbus.Property {
	property := func(name string, value any) dbus.Property {
		return dbus.Property{Name: name, Value: godbus.MakeVariant(value)}
	}
	micros := func(d time.Duration) uint64 { return uint64(d / time.Microsecond) }
	all := []dbus.Property{
		dbus.PropDescription(s.Description),
		dbus.PropType("exec"), // the start fails when the command cannot be executed
		dbus.PropExecStart(literal(s.Argv), false),
		// A unit that failed stays until somebody has read why.
		property("CollectMode", "inactive"),
		property("KillMode", "mixed"),
		property("OOMPolicy", "continue"), // the command tells what became of what it started
		property("StandardOutput", "journal"),
		property("StandardError", "journal"),
	}
	if len(s.Fields) > 0 {
		fields := make([][]byte, 0, len(s.Fields))
		for name, value := range s.Fields {
			fields = append(fields, []byte(name+"="+value))
		}
		slices.SortFunc(fields, slices.Compare)
		all = append(all, property("LogExtraFields", fields))
	}
	for _, bound := range []struct {
		name string
		is   uint64
	}{
		{"RuntimeMaxUSec", micros(s.Limit)},
		{"TimeoutStopUSec", micros(s.StopLimit)},
		{"CPUQuotaPerSecUSec", micros(s.CPUQuota)},
		{"CPUWeight", s.CPUWeight},
		{"MemoryMax", s.MemoryMax},
		{"MemoryLow", s.MemoryLow},
	} {
		if bound.is > 0 {
			all = append(all, property(bound.name, bound.is))
		}
	}
	if s.Slice != "" {
		all = append(all, dbus.PropSlice(s.Slice))
	}
	return all
}

// Run is one run of a service, as far as systemd knows of it.
type Run struct {
	// Loaded : systemd knows the unit. One that succeeded it forgets.
	Loaded bool
	// Active is active, activating, deactivating, inactive or failed.
	Active string
	// Result is systemd's word for how it ended: success, exit-code, signal, timeout, oom-kill, resources, …
	Result string
	// Invocation is the ID of this run.
	Invocation string
}

// Ended reports whether nothing of the service runs any more.
func (r Run) Ended() bool { return !r.Loaded || r.Active == "inactive" || r.Active == "failed" }

// Run tells of the last run of a service.
func (b *Bus) Run(ctx context.Context, name string) (Run, error) {
	units, err := b.Units(ctx, name)
	if err != nil {
		return Run{}, err
	}
	if units[0].Load == "not-found" {
		return Run{}, nil
	}
	conn, err := b.connection(ctx)
	if err != nil {
		return Run{}, err
	}
	properties, err := conn.GetAllPropertiesContext(ctx, name)
	if err != nil {
		return Run{}, b.failed(conn, "tell of "+name, err)
	}
	run := Run{Loaded: properties["LoadState"] != "not-found"}
	run.Active, _ = properties["ActiveState"].(string)
	run.Result, _ = properties["Result"].(string)
	if id, ok := properties["InvocationID"].([]byte); ok {
		run.Invocation = fmt.Sprintf("%x", id)
	}
	return run, nil
}

// Stop stops a service and waits for its end. One that is not there is no error.
func (b *Bus) Stop(ctx context.Context, name string) error {
	conn, err := b.connection(ctx)
	if err != nil {
		return err
	}
	ended := make(chan string, 1)
	if _, err := conn.StopUnitContext(ctx, name, "replace", ended); err != nil {
		var answer godbus.Error
		if errors.As(err, &answer) && answer.Name == "org.freedesktop.systemd1.NoSuchUnit" {
			return nil
		}
		return b.failed(conn, "stop "+name, err)
	}
	for {
		select {
		case <-ended:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("stop %s: %w", name, ctx.Err())
		case <-time.After(pollEvery):
			if !conn.Connected() {
				b.lost(conn)
				return fmt.Errorf("stop %s: %w", name, ErrOutcomeUnknown)
			}
		}
	}
}

// Clear has systemd forget a service that failed.
func (b *Bus) Clear(ctx context.Context, name string) error {
	conn, err := b.connection(ctx)
	if err != nil {
		return err
	}
	if err := conn.ResetFailedUnitContext(ctx, name); err != nil {
		var answer godbus.Error
		if errors.As(err, &answer) && answer.Name == "org.freedesktop.systemd1.NoSuchUnit" {
			return nil
		}
		return b.failed(conn, "forget "+name, err)
	}
	return nil
}
