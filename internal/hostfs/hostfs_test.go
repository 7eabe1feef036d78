package hostfs_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fettle-dev/fettle/internal/hostfs"
)

// tree makes a host root below a folder that holds a secret, and returns it opened. A value "-> x" makes a link to x.
func tree(t *testing.T, files map[string]string) (host *hostfs.Root, dir string) {
	t.Helper()
	outside := t.TempDir()
	dir = filepath.Join(outside, "host")
	must(t, os.Mkdir(dir, 0o755))
	must(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("outside"), 0o600))
	for name, content := range files {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if target, link := strings.CutPrefix(content, "-> "); link {
			must(t, os.Symlink(target, path))
			continue
		}
		must(t, os.WriteFile(path, []byte(content), 0o644))
	}
	host, err := hostfs.Open(dir)
	must(t, err)
	t.Cleanup(func() { must(t, host.Close()) })
	return host, dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestReadFileFollowsLinksAsTheMachineWould(t *testing.T) {
	host, dir := tree(t, map[string]string{
		"etc/real":            "content",
		"etc/relative":        "-> real",
		"etc/absolute":        "-> /etc/real",
		"etc/up":              "-> ../etc/real",
		"etc/far-up":          "-> ../../../../etc/real",
		"opt":                 "-> /usr/opt",
		"usr/opt/file":        "behind a folder that is a link",
		"etc/chain":           "-> /etc/absolute",
		"etc/through":         "-> /opt/file",
		"etc/dots":            "-> ./../etc/./real",
		"etc/loop":            "-> loop2",
		"etc/loop2":           "-> loop",
		"etc/dangling":        "-> /nowhere",
		"etc/outside":         "-> ../../secret",
		"etc/empty-component": "-> //etc//real",
	})
	must(t, os.Symlink(filepath.Join(filepath.Dir(dir), "secret"), filepath.Join(dir, "etc/outside-absolute")))
	for path, want := range map[string]string{
		"/etc/real": "content", "etc/real": "content", "/etc/../etc/real": "content", "/../../etc/real": "content",
		"/etc/relative": "content", "/etc/absolute": "content", "/etc/up": "content", "/etc/far-up": "content",
		"/opt/file": "behind a folder that is a link", "/etc/chain": "content", "/etc/through": "behind a folder that is a link",
		"/etc/dots": "content", "/etc/empty-component": "content",
	} {
		got, err := host.ReadFile(path)
		if err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", path, got, err, want)
		}
	}
	for path, want := range map[string]error{
		"/etc/loop": syscall.ELOOP, "/etc/dangling": fs.ErrNotExist, "/etc/missing": fs.ErrNotExist, "/missing/deep/file": fs.ErrNotExist,
		"/etc/real/below-a-file": syscall.ENOTDIR, "/etc/outside": fs.ErrNotExist, "/etc/outside-absolute": fs.ErrNotExist, "/etc": hostfs.ErrNotRegular,
	} {
		_, err := host.ReadFile(path)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
		var at *fs.PathError
		if !errors.As(err, &at) || at.Path != path || strings.Contains(err.Error(), dir) {
			t.Errorf("%s: the error %q does not name the machine's path", path, err)
		}
	}
}

func TestResolveAndPath(t *testing.T) {
	host, dir := tree(t, map[string]string{"var/lib/x/file": "", "var/alias": "-> /var/lib", "other": "-> var/alias/x"})
	for path, want := range map[string]string{"/": "/", "": "/", "/other/file": "/var/lib/x/file", "/var/alias/": "/var/lib", "/var/alias/x/missing/deeper": "/var/lib/x/missing/deeper"} {
		if got, err := host.Resolve(path); err != nil || got != want {
			t.Errorf("%s resolves to %q, %v; want %q", path, got, err, want)
		}
	}
	if got, want := host.Path("/var/../../etc"), filepath.Join(dir, "etc"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := host.Path("/"); got != dir {
		t.Errorf("%s, want %s", got, dir)
	}
	if host.IsMachine() {
		t.Error("a folder is taken for the machine's own root")
	}
	own, err := hostfs.Open("/")
	must(t, err)
	defer own.Close()
	if !own.IsMachine() || own.Path("/etc") != "/etc" {
		t.Errorf("the machine's own root: %t %s", own.IsMachine(), own.Path("/etc"))
	}
}

func TestReadDirIsSortedAndStatFollows(t *testing.T) {
	host, dir := tree(t, map[string]string{"d/b": "", "d/a": "12345", "d/c": "-> /d/a", "link": "-> d"})
	entries, err := host.ReadDir("/link")
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, []string{"a", "b", "c"}) {
		t.Errorf("%q", names)
	}
	if st, err := host.Stat("/link/c"); err != nil || st.Size() != 5 || !st.Mode().IsRegular() {
		t.Errorf("%v %v", st, err)
	}
	if _, err := host.ReadDir("/d/a"); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("listing a file: %v", err)
	}
	must(t, os.Chmod(filepath.Join(dir, "d/a"), 0o755))
	if st, err := host.Stat("/d/a"); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("%v %v", st, err)
	}
}

func TestReadFileRefusesWhatIsNoFile(t *testing.T) {
	host, dir := tree(t, map[string]string{"large": ""})
	must(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o644))
	must(t, os.Truncate(filepath.Join(dir, "large"), hostfs.MaxFile+1))
	done := make(chan error, 1)
	go func() {
		_, err := host.ReadFile("/pipe")
		done <- err
	}()
	select {
	case err := <-done:
		if !errors.Is(err, hostfs.ErrNotRegular) {
			t.Errorf("pipe: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("reading a pipe that nobody writes to waits for ever")
	}
	if _, err := host.ReadFile("/large"); !errors.Is(err, hostfs.ErrTooLarge) {
		t.Errorf("large: %v", err)
	}
	must(t, os.Truncate(filepath.Join(dir, "large"), hostfs.MaxFile))
	if content, err := host.ReadFile("/large"); err != nil || len(content) != hostfs.MaxFile {
		t.Errorf("as large as allowed: %d bytes, %v", len(content), err)
	}
}

func TestWithoutTheRightToRead(t *testing.T) {
	host, dir := tree(t, map[string]string{"closed/file": "x", "file": "x"})
	must(t, os.Chmod(filepath.Join(dir, "closed"), 0))
	must(t, os.Chmod(filepath.Join(dir, "file"), 0))
	asNobody(t, func() {
		for _, path := range []string{"/closed/file", "/file"} {
			if _, err := host.ReadFile(path); !errors.Is(err, fs.ErrPermission) {
				t.Errorf("%s: %v", path, err)
			}
		}
		if _, err := host.Stat("/closed/file"); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("stat: %v", err)
		}
	})
}

// asNobody runs f with the file rights of an unprivileged user. These belong to the thread, which ends with it.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if err := unix.Setfsuid(65534); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	<-done
}

func TestOpen(t *testing.T) {
	if _, err := hostfs.Open(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing root: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	if _, err := hostfs.Open(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file as root: %v", err)
	}
}
