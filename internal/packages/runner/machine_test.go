package runner_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/packages/format"
	"github.com/fettle-dev/fettle/internal/packages/image"
	"github.com/fettle-dev/fettle/internal/packages/runner"
	"github.com/fettle-dev/fettle/internal/packages/stages"
	"github.com/fettle-dev/fettle/internal/systemd"
	"github.com/fettle-dev/fettle/test/await"
	"github.com/fettle-dev/fettle/test/machines"
)

// host is a machine that runs systemd, with what a runner needs of it within reach of this process: its bus, and the
// folders that packages lie in.
type host struct {
	*machines.Machine
	// dir is where the machine's folders are, by the paths they have in it; state is at the same path in both.
	dir, state string
	images     string
}

func newHost(t *testing.T) *host {
	t.Helper()
	dir := t.TempDir()
	h := &host{dir: filepath.Join(dir, "host"), state: filepath.Join(dir, "state"), images: filepath.Join(dir, "images")}
	binds := []machines.Bind{{Source: h.state, Writable: true}, {Source: filepath.Join(dir, "bus"), Target: "/bus", Writable: true}}
	for _, folder := range []string{format.DefaultRoot, format.DefaultLogs} {
		binds = append(binds, machines.Bind{Source: filepath.Join(h.dir, folder), Target: folder, Writable: true})
	}
	for _, b := range binds {
		if err := os.MkdirAll(b.Source, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(h.state, "fettle-step")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "github.com/fettle-dev/fettle/cmd/fettle-step")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	h.Machine = machines.ForTest(t, machines.Options{Binds: binds, Files: []machines.File{{
		Path: "/etc/systemd/system/dbus.socket.d/listen.conf",
		Text: "[Socket]\nListenStream=/bus/system_bus_socket\n",
	}}})
	return h
}

// start starts a runner on the machine. stop ends it like a process that is told to end: steps go on.
func (h *host) start(t *testing.T, works ...runner.Work) (r *runner.Runner, stop func()) {
	t.Helper()
	root, err := hostfs.Open(h.dir)
	if err != nil {
		t.Fatal(err)
	}
	bus := systemd.NewBus(filepath.Join(filepath.Dir(h.dir), "bus", "system_bus_socket"))
	images, err := image.Open(h.images, image.Limits{Bytes: 1 << 30, Entries: 1000})
	if err != nil {
		t.Fatal(err)
	}
	boot, err := h.BootID()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	r, err = runner.New(runner.Options{
		Host: root, Units: bus, State: h.state, Step: filepath.Join(h.state, "fettle-step"), Root: format.DefaultRoot, Logs: format.DefaultLogs,
		Images: images, Boot: boot, Uptime: func() time.Duration { return time.Hour + time.Since(began) },
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range works {
		r.Want(w)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Start(ctx) }()
	stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		ended <- nil
		bus.Close()
		root.Close()
	}
	t.Cleanup(func() { cancel(); <-ended })
	return r, stop
}

// layoutOf makes an OCI layout of a package: config.json and other files.
func layoutOf(t *testing.T, config string, files map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(name, content string) {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	add("skyhook-package/config.json", config)
	for name, script := range files {
		add("skyhook-package/"+name, script)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	built, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: image.Platform.OS, Architecture: image.Platform.Architecture})
	if err != nil {
		t.Fatal(err)
	}
	if built, err = mutate.AppendLayers(built, layer); err != nil {
		t.Fatal(err)
	}
	path, err := layout.Write(t.TempDir(), empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := path.AppendImage(built); err != nil {
		t.Fatal(err)
	}
	return string(path)
}

// scripts is a package like shellscript: for each mode a step that runs a script of the configuration, if it is there.
func scripts(t *testing.T, version string) string {
	t.Helper()
	var list []string
	for _, mode := range []string{"apply", "config", "post-interrupt", "uninstall"} {
		for _, m := range []string{mode, mode + "-check"} {
			arg := strings.ReplaceAll(m, "-", "_")
			list = append(list, fmt.Sprintf(`%q: [{"name": %q, "path": "run.sh", "arguments": [%q], "returncodes": [0], "on_host": true, "idempotence": true, "upgrade_step": false}]`, m, arg, arg))
		}
	}
	config := fmt.Sprintf(`{"schema_version": "v1", "package_name": "scripts", "package_version": %q, "expected_config_files": [], "modes": {%s}}`, version, strings.Join(list, ", "))
	return layoutOf(t, config, map[string]string{
		"root_dir/etc/scripts-was-here": version,
		"skyhook_dir/run.sh":            "#!/bin/sh\necho \"$1\" >> /var/lib/skyhook/ran\nf=$SKYHOOK_DIR/configmaps/$1.sh\n[ ! -f \"$f\" ] || . \"$f\"\n",
	})
}

// work is one of a single package.
func work(file string, p stages.Package, configMap map[string]string) runner.Work {
	p.Name = "shellscript"
	if p.Version == "" {
		p.Version = "1.1.1"
	}
	p.Config = map[string]string{}
	for key, value := range configMap {
		p.Config[key] = value
	}
	return runner.Work{
		NodeWright: "gpu", UID: "f5a1d42e-74e5-4606-8bbc-b504fbe0074d", Generation: 1, Admission: "first",
		Plan:     stages.Plan{Packages: []stages.Package{p}, Admitted: true, Drained: true, Limits: stages.Limits{Retries: 1}},
		Packages: map[string]runner.Package{"shellscript": {Image: image.Reference{Repository: "registry.invalid/shellscript"}, File: "/images/" + filepath.Base(file), ConfigMap: configMap, StageTimeout: time.Minute}},
	}
}

// offer has a package's layout where the work expects it on the host.
func (h *host) offer(t *testing.T, file string) string {
	t.Helper()
	to := filepath.Join(h.dir, "images", filepath.Base(file))
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "cp", "-r", file, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return file
}

// ran is what the steps did, in order.
func (h *host) ran(t *testing.T) []string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(h.dir, format.DefaultRoot, "ran"))
	if err != nil {
		return nil
	}
	return strings.Fields(string(content))
}

func complete(t *testing.T, r *runner.Runner) {
	t.Helper()
	await.That(t, "the work is complete", func() bool { return r.Progress("gpu").Complete })
}

func TestOnAMachine(t *testing.T) {
	h := newHost(t)
	file := h.offer(t, scripts(t, "1.1.1"))
	all := func() []string {
		return []string{"apply", "apply_check", "config", "config_check", "post_interrupt", "post_interrupt_check"}
	}

	t.Run("install with an interrupt that restarts a service", func(t *testing.T) {
		before, err := h.Exec(t.Context(), "systemctl", "show", "-P", "InvocationID", "systemd-journald.service")
		if err != nil {
			t.Fatal(err)
		}
		r, stop := h.start(t, work(file, stages.Package{Interrupt: &stages.Disruption{Type: stages.Service, Services: []string{"systemd-journald"}}},
			map[string]string{"apply.sh": "echo hello; echo trouble >&2"}))
		complete(t, r)
		stop()
		if got := h.ran(t); !slices.Equal(got, all()) {
			t.Errorf("ran %q", got)
		}
		after, err := h.Exec(t.Context(), "systemctl", "show", "-P", "InvocationID", "systemd-journald.service")
		if err != nil || after == before {
			t.Errorf("the service was not restarted: %q %v", after, err)
		}
		tree := filepath.Join(h.dir, format.DefaultRoot, "gpu")
		for _, name := range []string{
			"flags/START", "flags/check_results", "flags/apply-check_ALL_CHECKED", "flags/scripts/1.1.1/run.sh_WydhcHBseSddX1swXQ==", "history/scripts.json",
			"interrupts/flags/gpu-f5a1d42e-74e5-4606-8bbc-b504fbe0074d-1_shellscript_1.1.1/service_restart_1.complete",
			"shellscript-1.1.1-f5a1d42e-74e5-4606-8bbc-b504fbe0074d-1/configmaps/apply.sh",
		} {
			if _, err := os.Stat(filepath.Join(tree, name)); err != nil {
				t.Error(err)
			}
		}
		logs, err := filepath.Glob(filepath.Join(h.dir, format.DefaultLogs, "gpu/scripts/1.1.1/run.sh-*.log"))
		if err != nil || len(logs) == 0 {
			t.Fatalf("%v %v", logs, err)
		}
		if there, err := h.ReadFile(t.Context(), "/etc/scripts-was-here"); err != nil || there != "1.1.1" {
			t.Errorf("root_dir was not copied: %q %v", there, err)
		}
		if journal, err := h.Exec(t.Context(), "journalctl", "-o", "cat", "FETTLE_PACKAGE=shellscript"); err != nil || !strings.Contains(journal, "hello") {
			t.Errorf("journal %q %v", journal, err)
		}
	})

	t.Run("a step outlives the runner", func(t *testing.T) {
		os.Remove(filepath.Join(h.dir, format.DefaultRoot, "ran"))
		w := work(file, stages.Package{Interrupt: &stages.Disruption{Type: stages.Noop}}, map[string]string{"config.sh": "echo begun > /var/lib/skyhook/begun; while [ ! -e /var/lib/skyhook/go ]; do sleep 0.1; done"})
		w.Generation = 2
		_, stop := h.start(t, w)
		await.That(t, "the step runs", func() bool { _, err := os.Stat(filepath.Join(h.dir, format.DefaultRoot, "begun")); return err == nil })
		stop()
		r, stop := h.start(t, w)
		if err := os.WriteFile(filepath.Join(h.dir, format.DefaultRoot, "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		complete(t, r)
		stop()
		if got := h.ran(t); !slices.Equal(got, []string{"config", "config_check"}) {
			t.Errorf("ran %q", got)
		}
	})

	t.Run("a failure is told, and given up after its retries", func(t *testing.T) {
		os.Remove(filepath.Join(h.dir, format.DefaultRoot, "ran"))
		w := work(file, stages.Package{}, map[string]string{"config_check.sh": "echo it is broken; exit 3"})
		w.Generation = 3
		r, stop := h.start(t, w)
		await.That(t, "it is given up", func() bool {
			p := r.Progress("gpu")
			return len(p.Host.Records) == 1 && p.Host.Records[0].State == stages.Erroring
		})
		n := r.Progress("gpu").Notes["shellscript"]
		stop()
		if n.Reason != runner.CheckFailed || !strings.Contains(n.Message, "exit status 3") || !strings.Contains(n.Tail, "it is broken") {
			t.Errorf("%+v", n)
		}
		if got := h.ran(t); !slices.Equal(got, []string{"config", "config_check", "config", "config_check"}) {
			t.Errorf("ran %q", got)
		}
	})

	t.Run("a reboot, proven by the boot ID", func(t *testing.T) {
		os.Remove(filepath.Join(h.dir, format.DefaultRoot, "ran"))
		before, err := h.BootID()
		if err != nil {
			t.Fatal(err)
		}
		w := work(file, stages.Package{Interrupt: &stages.Disruption{Type: stages.Reboot}, Rerun: stages.Rerun{ID: "again", Stage: stages.Apply}}, nil)
		w.Generation = 4
		_, stop := h.start(t, w)
		after, err := h.AwaitBoot(t.Context(), before)
		if err != nil {
			t.Fatal(err)
		}
		stop()
		r, stop := h.start(t, w)
		complete(t, r)
		stop()
		if again, err := h.BootID(); err != nil || again != after {
			t.Errorf("rebooted twice: %q %v", again, err)
		}
		if got := h.ran(t); !slices.Contains(got, "post_interrupt_check") {
			t.Errorf("ran %q", got)
		}
	})

	t.Run("uninstall", func(t *testing.T) {
		os.Remove(filepath.Join(h.dir, format.DefaultRoot, "ran"))
		r, stop := h.start(t, work(file, stages.Package{Uninstall: true}, nil))
		complete(t, r)
		stop()
		if got := h.ran(t); !slices.Equal(got, []string{"uninstall", "uninstall_check"}) {
			t.Errorf("ran %q", got)
		}
		history, err := os.ReadFile(filepath.Join(h.dir, format.DefaultRoot, "gpu/history/scripts.json"))
		if err != nil || !bytes.Contains(history, []byte(`"current-version": "uninstalled"`)) {
			t.Errorf("%s %v", history, err)
		}
		if _, err := os.Stat(filepath.Join(h.dir, format.DefaultRoot, "gpu/flags/scripts/1.1.1/run.sh_WydhcHBseSddX1swXQ==")); err == nil {
			t.Error("a flag is left")
		}
	})
}
