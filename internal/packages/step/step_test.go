package step_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fettle-dev/fettle/internal/packages/step"
	"github.com/fettle-dev/fettle/internal/statefile"
	"github.com/fettle-dev/fettle/test/await"
)

func shell(t *testing.T, script string) step.Order {
	dir := t.TempDir()
	return step.Order{
		ID: t.Name(), Argv: []string{"/bin/sh", "-c", script}, Env: map[string]string{"PATH": "/bin:/usr/bin", "A": "b c"}, Dir: dir,
		ReturnCodes: []int{0}, Output: 1 << 20, Log: filepath.Join(dir, "logs", "step.log"), Verdict: filepath.Join(dir, "verdicts", "v"),
	}
}

// run carries out an order and gives its verdict as the file has it.
func run(t *testing.T, o step.Order) (v step.Verdict, journal string) {
	t.Helper()
	var out bytes.Buffer
	if _, err := step.Run(t.Context(), o, &out); err != nil {
		t.Fatal(err)
	}
	v, err := step.ReadVerdict(o.Verdict)
	if err != nil {
		t.Fatal(err)
	}
	return v, out.String()
}

func TestVerdicts(t *testing.T) {
	for _, tc := range []struct {
		name   string
		script string
		change func(*step.Order)
		want   step.Verdict
		fault  string
	}{
		{name: "success", script: "echo x", want: step.Verdict{Succeeded: true, Tail: "x\n"}},
		{name: "failure", script: "echo x >&2; exit 3", want: step.Verdict{Exit: 3, Tail: "x\n"}},
		{name: "a status that counts as success", script: "exit 3", change: func(o *step.Order) { o.ReturnCodes = []int{1, 3} }, want: step.Verdict{Exit: 3, Succeeded: true}},
		{name: "success that does not count as one", script: "exit 0", change: func(o *step.Order) { o.ReturnCodes = []int{1} }, want: step.Verdict{}},
		{name: "a signal", script: "kill -9 $$", want: step.Verdict{Exit: -1, Signal: "killed"}},
		{name: "the environment is the order's alone", script: "env | sort | grep -v -e ^PWD -e ^_ -e ^SHLVL -e ^OLDPWD", want: step.Verdict{Succeeded: true, Tail: "A=b c\nPATH=/bin:/usr/bin\n"}},
		{name: "output that is no text", script: `printf 'a\377b'`, want: step.Verdict{Succeeded: true, Tail: "a\uFFFDb"}},
		{name: "no such command", change: func(o *step.Order) { o.Argv = []string{"/no/such"} }, want: step.Verdict{Exit: -1}, fault: "no such file"},
		{name: "no such folder", script: ":", change: func(o *step.Order) { o.Dir = "/no/such" }, want: step.Verdict{Exit: -1}, fault: "no such file"},
		{name: "a log that cannot be written", script: "echo x", change: func(o *step.Order) { o.Log = "/proc/no/log" }, want: step.Verdict{Succeeded: true, Tail: "x\n"}, fault: "its log is incomplete"},
		{name: "a background process does not hold it up", script: "sleep 1000 & echo x", want: step.Verdict{Succeeded: true, Tail: "x\n"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := shell(t, tc.script)
			if tc.change != nil {
				tc.change(&o)
			}
			v, _ := run(t, o)
			if v.ID != o.ID || v.Began.IsZero() || v.Ended.Before(v.Began) {
				t.Errorf("%+v", v)
			}
			if (v.Fault == "") != (tc.fault == "") || !strings.Contains(v.Fault, tc.fault) {
				t.Errorf("fault %q", v.Fault)
			}
			got := step.Verdict{Exit: v.Exit, Signal: v.Signal, Succeeded: v.Succeeded, Stopped: v.Stopped, Dropped: v.Dropped}
			if tc.fault == "" || tc.want.Tail != "" {
				got.Tail = v.Tail
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLogsHaveTimesAndTheJournalHasNot(t *testing.T) {
	o := shell(t, "echo one; sleep 0.1; printf 'two\n\nthree' >&2")
	_, journal := run(t, o)
	if journal != "one\ntwo\n\nthree" {
		t.Errorf("journal %q", journal)
	}
	const stamp = `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6} `
	for file, want := range map[string]string{
		o.Log:          `^\[out\]` + stamp + `one\n\[err\]` + stamp + `two\n\[err\]` + stamp + `\n\[err\]` + stamp + `three$`,
		o.Log + ".err": `^\[err\]` + stamp + `two\n\[err\]` + stamp + `\n\[err\]` + stamp + `three$`,
	} {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(want).Match(content) {
			t.Errorf("%s: %q", file, content)
		}
	}
}

func TestGigabytesOfOutputAreReadAndDropped(t *testing.T) {
	o := shell(t, "head -c 300000000 /dev/zero; echo end")
	o.Output = 1000
	v, journal := run(t, o)
	if !v.Succeeded || v.Dropped != 300000004-1000 || !strings.HasSuffix(v.Tail, "\x00end\n") || len(v.Tail) != 4<<10 {
		t.Errorf("dropped %d, tail of %d", v.Dropped, len(v.Tail))
	}
	if len(journal) > 1100 || !strings.HasSuffix(journal, "(what follows is more than is written down)\n") {
		t.Errorf("journal of %d", len(journal))
	}
}

func TestWhoStopsItWaitsForIt(t *testing.T) {
	for name, tc := range map[string]struct {
		script string
		want   step.Verdict
	}{
		"it ends":                  {"echo ready; exec sleep 1000", step.Verdict{Exit: -1, Signal: "terminated", Stopped: true}},
		"it cleans up first":       {"trap 'echo cleaned; exit 5' TERM; echo ready; while :; do sleep 0.05; done", step.Verdict{Exit: 5, Stopped: true}},
		"so do those it waits for": {"echo ready; sh -c 'trap \"exit 6\" TERM; while :; do sleep 0.05; done'; exit $?", step.Verdict{Exit: -1, Signal: "terminated", Stopped: true}},
	} {
		t.Run(name, func(t *testing.T) {
			stop, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, w := io.Pipe()
			go func() {
				line := make([]byte, 6)
				_, _ = io.ReadFull(r, line)
				cancel()
				_, _ = io.Copy(io.Discard, r)
			}()
			v, err := step.Run(stop, shell(t, tc.script), w)
			if err != nil {
				t.Fatal(err)
			}
			if got := (step.Verdict{Exit: v.Exit, Signal: v.Signal, Stopped: v.Stopped}); got != tc.want {
				t.Errorf("%+v", v)
			}
		})
	}
}

func TestTheImageIsTheRootAndTheHostUnderIt(t *testing.T) {
	// Any root with a shell will do for an image: a copy of the shell and what it needs.
	root := t.TempDir()
	libs, err := exec.CommandContext(t.Context(), "sh", "-c", `
		for f in /bin/sh /bin/cat /bin/ls $(ldd /bin/sh /bin/cat /bin/ls | grep -o '/[^ ]*' | grep -v ':$' | sort -u); do
			mkdir -p "$1$(dirname $f)" && cp -L $f "$1$f"
		done; echo image > "$1/of"`, "sh", root).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, libs)
	}
	onHost := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(onHost, []byte("host\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := shell(t, "cat /of; cat /root"+onHost+"; echo changed > /of; cat /of; ls -d /proc/self/mounts")
	o.Dir, o.Image = "/", root
	before := scratches(t)
	v, _ := run(t, o)
	if v.Tail != "image\nhost\nchanged\n/proc/self/mounts\n" || !v.Succeeded {
		t.Errorf("%+v", v)
	}
	if content, err := os.ReadFile(filepath.Join(root, "of")); err != nil || string(content) != "image\n" {
		t.Errorf("the image has %q, %v", content, err)
	}
	if after := scratches(t); !cmp.Equal(before, after) {
		t.Errorf("left behind: %v", after)
	}
	o.Image = "/no/such"
	if v, _ := run(t, o); !strings.Contains(v.Fault, "make a root of the image: mount overlay") {
		t.Errorf("%+v", v)
	}
	if after := scratches(t); !cmp.Equal(before, after) {
		t.Errorf("left behind: %v", after)
	}
}

func scratches(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("/run/fettle-step-*")
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestOrdersAreValidated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "order")
	err := step.Order{Argv: []string{"sh"}, Image: "x", Log: "y"}.Write(path)
	for _, want := range []string{`argv[0] "sh" is not an absolute path`, `dir ""`, `image "x"`, `log "y"`, `verdict ""`, "output is not more than 0"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("lacks %q: %v", want, err)
		}
	}
	o := shell(t, "true")
	if err := o.Write(path); err != nil {
		t.Fatal(err)
	}
	back, err := step.ReadOrder(path)
	if err != nil || !cmp.Equal(o, back) {
		t.Errorf("%v\n%s", err, cmp.Diff(o, back))
	}
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := step.ReadOrder(path); err == nil {
		t.Error("a damaged order was read")
	}
	if _, err := step.ReadVerdict(path + "x"); !statefile.Missing(err) {
		t.Errorf("%v", err)
	}
}

// The program itself: its exit status is the step's, its verdict is there when it has ended, and killing it leaves none.
func TestProgram(t *testing.T) {
	program := filepath.Join(t.TempDir(), "fettle-step")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "github.com/fettle-dev/fettle/cmd/fettle-step")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	order := func(script string) (path string, o step.Order) {
		o = shell(t, script)
		path = filepath.Join(o.Dir, "order")
		if err := o.Write(path); err != nil {
			t.Fatal(err)
		}
		return path, o
	}
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": 1} {
		path, o := order(script)
		cmd := exec.CommandContext(t.Context(), program, path)
		_ = cmd.Run() // its status is looked at
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%s: %d", script, got)
		}
		if _, err := step.ReadVerdict(o.Verdict); err != nil {
			t.Errorf("%s: %v", script, err)
		}
	}
	path, o := order("echo $$ > pid; exec sleep 1000")
	cmd := exec.CommandContext(t.Context(), program, path)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid []byte
	await.That(t, "the step runs", func() bool { pid, _ = os.ReadFile(filepath.Join(o.Dir, "pid")); return len(pid) > 1 })
	t.Cleanup(func() { _ = exec.Command("kill", "-9", strings.TrimSpace(string(pid))).Run() })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if _, err := step.ReadVerdict(o.Verdict); !statefile.Missing(err) {
		t.Errorf("%v", err)
	}
	if out, err := exec.CommandContext(t.Context(), program, "--works").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if info, err := os.Stat(program); err != nil || info.Size() > 12<<20 {
		t.Errorf("%v %v", info.Size(), err)
	}
}
