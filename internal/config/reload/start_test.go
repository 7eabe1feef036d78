package reload

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestStart(t *testing.T) {
	const good, bad = "log: {level: warn}\n", "log: {level: loud}\n"
	for _, tc := range []struct {
		name         string
		last         string // content of the last good file; "-": none is known
		content      string // "-": no file
		args         []string
		level, fault string // fault: how it ends, empty for none
	}{
		{name: "a valid file", last: "log: {level: error}\n", content: good, level: "warn"},
		{name: "an empty file where nothing was before", last: "-", content: "", level: "info"},
		{name: "a faulty file", last: good, content: bad, level: "warn", fault: `(allowed: debug, info, warn, error); in force: the last valid file`},
		{name: "a faulty file and no last one", last: "-", content: bad, level: "info", fault: "; in force: the defaults, since no valid file is known"},
		{name: "a faulty file and a last one that is not valid any more", last: bad, content: bad, level: "info", fault: "; in force: the defaults, since no valid file is known"},
		{name: "no file where one is named", last: good, content: "-", level: "warn", fault: "no such file or directory; in force: the last valid file"},
		{name: "a file that a power cut emptied", last: good, content: "", level: "warn", fault: "the file is empty; write {} into it if the defaults are meant; in force: the last valid file"},
		{name: "a file of the defaults", last: good, content: "{}", level: "info"},
		{name: "a faulty flag", last: good, content: good, args: []string{"--log-format=xml"}, level: "warn", fault: `flag --log-format: log.format: "xml" is not one of the allowed values (allowed: auto, text, json, journal); in force: the configuration without those values`},
		{name: "a faulty file and a flag", last: good, content: bad, args: []string{"--log-level=debug"}, level: "debug", fault: "; in force: the last valid file"},
		{name: "a faulty file and a faulty flag", last: good, content: bad, args: []string{"--log-level=silent"}, level: "warn", fault: "; in force: the last valid file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path, state := filepath.Join(t.TempDir(), "nodeagent.yaml"), t.TempDir()
			if tc.last != "-" {
				must(t, remember(state, path, []byte(tc.last)))
			}
			if tc.content != "-" {
				put(t, path, tc.content)
			}
			r := start(t, path, state, tc.args...)
			fault := ""
			if err := r.Fault(); err != nil {
				fault = err.Error()
			}
			if r.level() != tc.level || (fault == "") != (tc.fault == "") || !strings.HasSuffix(fault, tc.fault) {
				t.Errorf("level %s, fault %q", r.level(), fault)
			}
			r.run().settle()
			if r.applies() != 0 {
				t.Errorf("%d applied without a change", r.applies())
			}
			kept := string(recall(state, path))
			if tc.fault == "" && kept != tc.content || tc.fault != "" && tc.last != "-" && kept != tc.last {
				t.Errorf("kept %q", kept)
			}
		})
	}
}

func TestARepairedFileIsAppliedAfterAStartWithout(t *testing.T) {
	path, state := filepath.Join(t.TempDir(), "nodeagent.yaml"), t.TempDir()
	put(t, path, "log: {level: loud}\n")
	r := start(t, path, state, "--log-format=xml").run()
	r.settle()
	put(t, path, level("debug"))
	r.await("level debug", func() bool { return r.level() == "debug" })
	r.awaitFault("flag --log-format") // which only a new start can repair
	r.settle()
	if r.applies() != 1 || string(recall(state, path)) != level("debug") {
		t.Errorf("%d applied, kept %q", r.applies(), recall(state, path))
	}
}

func TestTheStateFolderOfAFaultyFileIsFound(t *testing.T) {
	path, state := filepath.Join(t.TempDir(), "nodeagent.yaml"), t.TempDir()
	must(t, remember(state, path, []byte(level("warn"))))
	put(t, path, "stateDir: "+state+"\nlog: {level: loud}\n")
	t.Setenv("FETTLE_CONFIG", path)
	if c, w := Start(nil, kinds); c.Log.Level != "warn" || w.Fault() == nil {
		t.Errorf("%+v %v", c, w.Fault())
	}
}

func TestAnotherFilesContentIsNotTaken(t *testing.T) {
	dir, state := t.TempDir(), t.TempDir()
	must(t, remember(state, filepath.Join(dir, "other.yaml"), []byte(level("warn"))))
	if got := recall(state, filepath.Join(dir, "nodeagent.yaml")); got != nil {
		t.Errorf("%q", got)
	}
	put(t, filepath.Join(state, lastGoodFile), "damaged")
	if got := recall(state, filepath.Join(dir, "other.yaml")); got != nil {
		t.Errorf("%q", got)
	}
}

func TestAStateFolderThatCannotBeWrittenIsNoFault(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nodeagent.yaml")
	put(t, path, level("warn"))
	r := start(t, path, filepath.Join(path, "not-a-folder")).run()
	r.settle()
	put(t, path, level("debug"))
	r.awaitLevel("debug")
	if !strings.Contains(r.log.String(), "the configuration is not kept for a later start") {
		t.Error("and nothing is said")
	}
}

// The test runs as root, to whom every file can be read, unless the thread gives that right up.
func TestAFileThatMayNotBeRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nodeagent.yaml")
	put(t, path, level("debug"))
	must(t, os.Chmod(path, 0))
	state := t.TempDir()
	must(t, remember(state, path, []byte(level("warn"))))
	var r *rig
	withoutRightToReadAll(t, func() { r = start(t, path, state) })
	if fault := r.Fault(); r.level() != "warn" || fault == nil || !strings.Contains(fault.Error(), "permission denied; in force: the last valid file") {
		t.Fatalf("level %s, %v", r.level(), fault)
	}
	r.run()
	r.awaitLevel("debug") // read by a thread that may
}

func TestAFileThatMayNotBeReadAnyMore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nodeagent.yaml")
	put(t, path, level("warn"))
	r := start(t, path, t.TempDir())
	must(t, os.Chmod(path, 0))
	put(t, path+".new", "")
	withoutRightToReadAll(t, func() { r.reload(nil) })
	if fault := r.Fault(); fault == nil || !strings.Contains(fault.Error(), "permission denied; in force: the last valid file") {
		t.Fatalf("%v", fault)
	}
	r.run()
	r.await("no fault", func() bool { return r.Fault() == nil })
}

// withoutRightToReadAll calls f on a thread, which ends with it, that may read only what a file's mode allows its owner.
func withoutRightToReadAll(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock it
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		err := unix.Capget(&header, &data[0])
		data[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
		if err == nil {
			err = unix.Capset(&header, &data[0])
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Errorf("give up a capability: %v", err)
	}
}
