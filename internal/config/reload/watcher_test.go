package reload

import (
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fettle-dev/fettle/internal/config/strict"
)

func TestAChangedFileIsApplied(t *testing.T) {
	for _, tc := range []struct {
		name  string
		write func(t *testing.T, path, content string)
	}{
		{"written in place", put},
		{"renamed over", replace},
		{"removed and made anew", func(t *testing.T, path, content string) {
			must(t, os.Remove(path))
			put(t, path, content)
		}},
		{"moved away and made anew, as some editors do", func(t *testing.T, path, content string) {
			must(t, os.Rename(path, path+"~"))
			put(t, path, content)
		}},
		{"its folder removed and made anew", func(t *testing.T, path, content string) {
			must(t, os.RemoveAll(filepath.Dir(path)))
			must(t, os.MkdirAll(filepath.Dir(path), 0o755))
			put(t, path, content)
		}},
		{"its folder replaced", func(t *testing.T, path, content string) {
			folder := filepath.Dir(path)
			must(t, os.RemoveAll(folder+".old"))
			must(t, os.Mkdir(folder+".new", 0o755))
			put(t, filepath.Join(folder+".new", filepath.Base(path)), content)
			must(t, os.Rename(folder, folder+".old"))
			must(t, os.Rename(folder+".new", folder))
		}},
		{"a link to another file", func(t *testing.T, path, content string) {
			target, err := os.MkdirTemp(t.TempDir(), "")
			must(t, err)
			put(t, filepath.Join(target, "real.yaml"), content)
			must(t, os.Symlink(filepath.Join(target, "real.yaml"), path+".link"))
			must(t, os.Rename(path+".link", path))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "fettle", "nodeagent.yaml")
			must(t, os.Mkdir(filepath.Dir(path), 0o755))
			put(t, path, level("warn"))
			r := start(t, path, t.TempDir()).run()
			for generation, want := range []string{"debug", "error", "info"} {
				tc.write(t, path, level(want))
				r.awaitLevel(want)
				if got := r.Status().Generation; got != generation+2 {
					t.Errorf("generation %d", got)
				}
			}
		})
	}
}

func TestATargetOfALinkThatIsWrittenIsApplied(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(t.TempDir(), "real.yaml")
	put(t, target, level("warn"))
	must(t, os.Symlink(target, filepath.Join(dir, "nodeagent.yaml")))
	r := start(t, filepath.Join(dir, "nodeagent.yaml"), t.TempDir()).run()
	put(t, target, level("debug"))
	r.awaitLevel("debug")
	replace(t, target, level("error"))
	r.awaitLevel("error")
}

func TestAConfigMapThatIsSwappedIsApplied(t *testing.T) {
	m := &configMap{t: t, dir: t.TempDir()}
	m.publish(level("warn"))
	r := start(t, m.file(), t.TempDir()).run()
	for range 5 {
		for _, want := range []string{"debug", "error"} {
			m.publish(level(want))
			r.awaitLevel(want)
		}
	}
	m.publish("log: {level: loud}\n")
	r.awaitFault(`"loud" is not one of the allowed values`)
	if r.level() != "error" {
		t.Errorf("level %s", r.level())
	}
	m.publish(level("info"))
	r.awaitLevel("info")
}

func TestAFileWhoseFolderIsMadeLaterIsApplied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "etc", "fettle", "nodeagent.yaml")
	r := start(t, path, t.TempDir()).run()
	r.awaitFault("no such file or directory; in force: the defaults, since no valid file is known")
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	put(t, path, level("warn"))
	r.awaitLevel("warn")
}

func TestWhatIsNotValidIsNotApplied(t *testing.T) {
	for _, tc := range []struct{ name, content, says string }{
		{"a mistyped key", "log: {lvel: debug}\n", `unknown key "lvel"; did you mean "level"?`},
		{"a valid and a faulty value", "log: {level: debug}\nhostRoot: relative\n", `"relative" is not an absolute path`},
		{"half a line", "log: {lev", "not valid YAML"},
		{"nothing", "", "the file is empty"},
		{"blanks", " \n\n", "the file is empty"},
		{"1 MiB of garbage", strings.Repeat("garbage\x00\xff", 1<<17), "larger than 256 KiB"},
		{"thousands of faults", strings.Repeat("? [a]\n: b\n", 5000), "and 98 more; `nodeagent config validate` lists them"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "nodeagent.yaml")
			put(t, path, level("warn"))
			r := start(t, path, t.TempDir()).run()
			put(t, path, tc.content)
			r.awaitFault(tc.says)
			if fault := r.Fault().Error(); len(fault) > 2048 || strings.Contains(fault, "\n") || !strings.HasSuffix(fault, "; in force: the last valid file") {
				t.Errorf("%d bytes: %q", len(fault), fault)
			}
			put(t, path, level("warn"))
			r.await("no fault", func() bool { return r.Fault() == nil })
			if r.applies() != 0 || r.Status().Generation != 1 {
				t.Errorf("%d applied, generation %d, of a file that is as it was", r.applies(), r.Status().Generation)
			}
		})
	}
}

func TestAFaultNamesItsCause(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nodeagent.yaml")
	put(t, path, "log: {level: loud}\n")
	var faults strict.Faults
	if r := start(t, path, t.TempDir()); !errors.As(r.Fault(), &faults) || faults[0].Key != "log.level" || faults[0].Where != path+":1" {
		t.Errorf("%v", r.Fault())
	}
}

// Between truncation and the last write a file that is written in place is valid, but not meant.
func TestAFileIsNotReadWhileItIsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nodeagent.yaml")
	put(t, path, "log: {level: warn}\nchecks: [{name: disk, disabled: true}]\n")
	r := start(t, path, t.TempDir()).run()
	r.settle()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	must(t, err)
	defer f.Close()
	if !beingWritten(path) {
		t.Fatal("a file that is open for writing is not known to be")
	}
	_, err = f.WriteString("log: {level: error}\n")
	must(t, err)
	r.hup <- syscall.SIGHUP // whatever asks for it
	r.await("word of the signal", func() bool { return strings.Contains(r.log.String(), "told to reload") && len(r.hup) == 0 })
	_, err = f.WriteString("checks: [{name: disk, interval: 2m}]\n")
	must(t, err)
	must(t, f.Close())
	r.awaitLevel("error")
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.applied[0].Checks[0].Settings; len(r.applied) != 1 || s.Interval.String() != "2m0s" || s.Disabled {
		t.Errorf("%d applied, the first with %+v", len(r.applied), s)
	}
}

func TestADeletedFileStaysInForce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nodeagent.yaml")
	put(t, path, level("warn"))
	r := start(t, path, t.TempDir()).run()
	must(t, os.Remove(path))
	r.awaitFault("no such file or directory; in force: the last valid file")
	put(t, path, level("warn"))
	r.await("no fault", func() bool { return r.Fault() == nil })
	if r.applies() != 0 {
		t.Error("applied")
	}
}

func TestACommentIsNoChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nodeagent.yaml")
	put(t, path, level("warn"))
	r := start(t, path, t.TempDir()).run()
	before := r.Status()
	put(t, path, "# a comment\n"+level("warn"))
	r.await("another hash", func() bool { return r.Status().Hash != before.Hash })
	if after := r.Status(); r.applies() != 0 || after.Generation != 1 || after.LoadedAt.Before(before.LoadedAt) || after.Path != path {
		t.Errorf("%d applied, %+v", r.applies(), after)
	}
}

func TestKeysThatNeedARestartKeepTheirValues(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nodeagent.yaml")
	put(t, path, level("warn"))
	r := start(t, path, t.TempDir()).run()
	put(t, path, "hostRoot: /host\nheartbeat: {interval: 20s}\n"+level("debug"))
	r.awaitFault("needs a restart to take effect: hostRoot, heartbeat.interval")
	r.await("the rest", func() bool { return r.level() == "debug" })
	r.mu.Lock()
	if c := r.applied[0]; c.HostRoot != "/" || c.Heartbeat != r.started.Heartbeat {
		t.Errorf("%+v", c)
	}
	r.mu.Unlock()
	put(t, path, level("error"))
	r.awaitLevel("error")
}

// A mount over the file is a change of which no watch tells.
func TestSIGHUP(t *testing.T) {
	path, other := filepath.Join(t.TempDir(), "nodeagent.yaml"), filepath.Join(t.TempDir(), "other.yaml")
	put(t, path, level("warn"))
	put(t, other, level("debug"))
	r := start(t, path, t.TempDir()).run()
	r.settle()
	if r.applies() != 0 || r.Status().Generation != 1 {
		t.Errorf("%d applied without a change", r.applies())
	}
	must(t, unix.Mount(other, path, "", unix.MS_BIND, ""))
	t.Cleanup(func() { must(t, unix.Unmount(path, unix.MNT_DETACH)) })
	signal.Notify(r.hup, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(r.hup) })
	must(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	r.awaitLevel("debug")
}

func TestRunAppliesNothingAfterItReturned(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nodeagent.yaml")
	put(t, path, level("warn"))
	r := start(t, path, t.TempDir()).run()
	r.settle()
	r.end()
	<-r.ended
	put(t, path, level("debug"))
	if r.applies() != 0 {
		t.Error("applied")
	}
}
