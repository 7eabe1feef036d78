package reload

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
)

var kinds = []probes.Kind{probes.Define(
	probes.Kind{Name: "disk", Condition: "fettle.dev/StorageReady", Interval: time.Minute, Timeout: time.Second, Thresholds: health.Thresholds{Failure: 1, Success: 1}},
	func() struct{} { return struct{}{} }, func(probes.Env, struct{}) probes.Probe { return nil },
)}

// generous bounds what is awaited; nothing is asserted to be quick.
const generous = time.Minute

// rig is a running Watcher and what it applied.
type rig struct {
	*Watcher
	t       *testing.T
	started config.Config
	hup     chan os.Signal
	log     *lines
	end     context.CancelFunc
	ended   chan struct{}

	mu      sync.Mutex
	applied []config.Config
}

// start starts a Watcher of a file as an agent does, with flags.
func start(t *testing.T, path, stateDir string, args ...string) *rig {
	t.Helper()
	flags := pflag.NewFlagSet("nodeagent", pflag.ContinueOnError)
	config.AddFlags(flags)
	if err := flags.Parse(append([]string{"--config", path, "--state-dir", stateDir}, args...)); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, hup: make(chan os.Signal, 1), log: &lines{}, ended: make(chan struct{})}
	r.started, r.Watcher = Start(flags, kinds)
	return r
}

// run runs the Watcher until the test ends.
func (r *rig) run() *rig {
	ctx, cancel := context.WithCancel(r.t.Context())
	r.end = cancel
	go func() {
		defer close(r.ended)
		r.Run(ctx, r.hup, slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})), r.apply)
	}()
	r.t.Cleanup(func() {
		cancel()
		<-r.ended
		if r.t.Failed() {
			r.t.Logf("the watcher's log:\n%s", r.log)
		}
	})
	return r
}

func (r *rig) apply(c config.Config) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.applied = append(r.applied, c)
}

func (r *rig) level() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.applied) == 0 {
		return r.started.Log.Level
	}
	return r.applied[len(r.applied)-1].Log.Level
}

func (r *rig) applies() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.applied)
}

// await waits until something holds.
func (r *rig) await(what string, holds func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(generous); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("%s: never; status %+v, level %s", what, r.Status(), r.level())
		}
	}
}

func (r *rig) awaitLevel(level string) {
	r.t.Helper()
	r.await("level "+level, func() bool { return r.level() == level && r.Fault() == nil })
}

func (r *rig) awaitFault(part string) {
	r.t.Helper()
	r.await("fault "+part, func() bool { return r.Fault() != nil && strings.Contains(r.Fault().Error(), part) })
}

// settle tells the Watcher to reload and waits until it has.
func (r *rig) settle() {
	r.t.Helper()
	const told, looked = "told to reload the configuration", "looked at the configuration"
	before := strings.Count(r.log.String(), told)
	r.hup <- syscall.SIGHUP
	r.await("a look", func() bool {
		log := r.log.String()
		return strings.Count(log, told) > before && strings.LastIndex(log, looked) > strings.LastIndex(log, told)
	})
}

// lines is a log that can be read while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func level(level string) string { return "log: {level: " + level + "}\n" }

func put(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(content), 0o600))
}

// replace writes a file as careful programs do.
func replace(t *testing.T, path, content string) {
	t.Helper()
	put(t, path+".new", content)
	must(t, os.Rename(path+".new", path))
}

// configMap is a folder as a kubelet mounts a ConfigMap.
type configMap struct {
	t          *testing.T
	dir        string
	generation int
}

func (m *configMap) file() string { return filepath.Join(m.dir, "nodeagent.yaml") }

// publish writes a new folder, points a new link to it, renames that over the old, and removes the old folder, in the
// order of a kubelet.
func (m *configMap) publish(content string) {
	m.t.Helper()
	old, _ := os.Readlink(filepath.Join(m.dir, "..data"))
	m.generation++
	folder := fmt.Sprintf("..2030_01_01_00_00_%02d.123", m.generation)
	must(m.t, os.Mkdir(filepath.Join(m.dir, folder), 0o755))
	must(m.t, os.WriteFile(filepath.Join(m.dir, folder, "nodeagent.yaml"), []byte(content), 0o644))
	must(m.t, os.Symlink(folder, filepath.Join(m.dir, "..data_tmp")))
	must(m.t, os.Rename(filepath.Join(m.dir, "..data_tmp"), filepath.Join(m.dir, "..data")))
	if old == "" {
		must(m.t, os.Symlink("..data/nodeagent.yaml", m.file()))
		return
	}
	must(m.t, os.RemoveAll(filepath.Join(m.dir, old)))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
