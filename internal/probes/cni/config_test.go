package cni_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/probes/cni"
)

// machine is a root file system under construction.
type machine struct {
	t    *testing.T
	root string
}

// newMachine has a kubelet's folder and, from testdata, a plugin's configuration; binaries are executable files in /opt/cni/bin.
func newMachine(t *testing.T, fixture string, binaries ...string) machine {
	t.Helper()
	m := machine{t: t, root: t.TempDir()}
	m.must(os.Chmod(m.root, 0o755))
	m.mkdir("/var/lib/kubelet")
	if fixture != "" {
		m.must(os.CopyFS(filepath.Join(m.root, "etc/cni/net.d"), os.DirFS(filepath.Join("testdata", fixture))))
	}
	m.mkdir("/opt/cni/bin")
	for _, b := range binaries {
		m.write("/opt/cni/bin/"+b, "\x7fELF", 0o755)
	}
	return m
}

func (m machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m machine) mkdir(path string) { m.must(os.MkdirAll(filepath.Join(m.root, path), 0o755)) }

func (m machine) write(path, content string, mode os.FileMode) {
	path = filepath.Join(m.root, path)
	m.must(os.MkdirAll(filepath.Dir(path), 0o755))
	m.must(os.WriteFile(path, []byte(content), mode))
	m.must(os.Chmod(path, mode))
}

func (m machine) conf(name, content string) { m.write("/etc/cni/net.d/"+name, content, 0o600) }

func (m machine) link(path, target string) {
	m.must(os.MkdirAll(filepath.Dir(filepath.Join(m.root, path)), 0o755))
	m.must(os.Symlink(target, filepath.Join(m.root, path)))
}

func (m machine) remove(path string) { m.must(os.RemoveAll(filepath.Join(m.root, path))) }

func (m machine) chmod(path string, mode os.FileMode) {
	m.must(os.Chmod(filepath.Join(m.root, path), mode))
}

func (m machine) look(change ...func(*cni.ConfigOptions)) health.Result {
	m.t.Helper()
	host, err := hostfs.Open(m.root)
	m.must(err)
	defer host.Close()
	options := cni.Config.NewOptions().(*cni.ConfigOptions)
	for _, c := range change {
		c(options)
	}
	return cni.Config.Build(probes.Env{Host: host}, options).Run(context.Background())
}

// flannelNeeds is what the fixture of flannel needs, with what flannel itself calls.
var flannelNeeds = []string{"flannel", "portmap", "bridge", "host-local"}

func TestRealConfigurations(t *testing.T) {
	for _, tc := range []struct {
		fixture, network string
		needs            []string
	}{
		{fixture: "flannel-0.26", network: `"cbr0" of /etc/cni/net.d/10-flannel.conflist`, needs: flannelNeeds},
		{fixture: "calico-3.29", network: `"k8s-pod-network" of /etc/cni/net.d/10-calico.conflist`, needs: []string{"calico", "calico-ipam", "portmap", "bandwidth"}},
		{fixture: "cilium-1.16", network: `"cilium" of /etc/cni/net.d/05-cilium.conflist`, needs: []string{"cilium-cni"}},
		{fixture: "bridge-single", network: `"podnet" of /etc/cni/net.d/10-bridge.conf`, needs: []string{"bridge", "host-local"}},
		{fixture: "bridge-spec-1.1", network: `"podnet" of /etc/cni/net.d/10-bridge.conflist`, needs: []string{"bridge", "host-local", "tuning"}},
		{fixture: "kindnet-ptp", network: `"kindnet" of /etc/cni/net.d/10-kindnet.conflist`, needs: []string{"ptp", "host-local", "portmap"}},
		{fixture: "multus-thin-4", network: `"multus-cni-network" of /etc/cni/net.d/00-multus.conf`, needs: []string{"multus"}},
	} {
		t.Run(tc.fixture, func(t *testing.T) {
			want := health.Result{Verdict: health.OK, Reason: health.ReasonOK, Message: "network " + tc.network + " has its plugins"}
			if got := newMachine(t, tc.fixture, tc.needs...).look(); got != want {
				t.Errorf("complete: %+v, want %+v", got, want)
			}
			for _, lost := range tc.needs {
				m := newMachine(t, tc.fixture, tc.needs...)
				m.remove("/opt/cni/bin/" + lost)
				got := m.look()
				if got.Verdict != health.Fatal || got.Reason != cni.PluginMissing || !strings.Contains(got.Message, " needs "+lost+", not found") {
					t.Errorf("without %s: %+v", lost, got)
				}
			}
		})
	}
}

func TestFaults(t *testing.T) {
	const first = "/etc/cni/net.d/10-flannel.conflist"
	for _, tc := range []struct {
		name   string
		break_ func(machine)
		reason string
		says   string // the whole message
	}{
		{name: "the configuration is gone", break_: func(m machine) { m.remove(first) }, reason: cni.ConfigMissing,
			says: "no *.conf, *.conflist or *.json in /etc/cni/net.d"},
		{name: "its folder is gone", break_: func(m machine) { m.remove("/etc/cni") }, reason: cni.ConfigMissing,
			says: "/etc/cni/net.d does not exist, although /var/lib/kubelet does"},
		{name: "only files that no runtime takes", break_: func(m machine) { m.remove(first); m.conf("10-flannel.conflist.bak", "{}") }, reason: cni.ConfigMissing,
			says: "no *.conf, *.conflist or *.json in /etc/cni/net.d"},
		{name: "a folder with the name of a file does not count", break_: func(m machine) { m.remove(first); m.mkdir("/etc/cni/net.d/a.conf") }, reason: cni.ConfigMissing,
			says: "no *.conf, *.conflist or *.json in /etc/cni/net.d"},
		{name: "an empty file", break_: func(m machine) { m.conf("10-flannel.conflist", " \n") }, reason: cni.ConfigInvalid,
			says: first + ": the file is empty"},
		{name: "half a file", break_: func(m machine) { m.conf("10-flannel.conflist", `{"name": "cbr0", "plug`) }, reason: cni.ConfigInvalid,
			says: first + ": error parsing configuration list: unexpected end of JSON input"},
		{name: "a list without plugins", break_: func(m machine) { m.conf("10-flannel.conflist", `{"name": "cbr0", "plugins": []}`) }, reason: cni.ConfigInvalid,
			says: first + ": error parsing configuration list: no plugins in list"},
		{name: "a list without the key plugins", break_: func(m machine) { m.conf("10-flannel.conflist", `{"name": "cbr0"}`) }, reason: cni.ConfigInvalid,
			says: first + ": no plugins"},
		{name: "only inlined plugins, and none", break_: func(m machine) {
			m.conf("10-flannel.conflist", `{"name": "cbr0", "loadOnlyInlinedPlugins": true}`)
		}, reason: cni.ConfigInvalid,
			says: first + ": error parsing configuration list: `loadOnlyInlinedPlugins` is true, and no 'plugins' key"},
		{name: "a plugin without a type", break_: func(m machine) { m.conf("10-flannel.conflist", `{"name": "cbr0", "plugins": [{}]}`) }, reason: cni.ConfigInvalid,
			says: first + ": failed to parse plugin config 0: error parsing configuration: missing 'type'"},
		{name: "a list in a file for one plugin", break_: func(m machine) { m.conf("00-list.conf", `{"name": "cbr0", "plugins": [{"type": "bridge"}]}`) }, reason: cni.ConfigInvalid,
			says: "/etc/cni/net.d/00-list.conf: error parsing configuration: missing 'type'"},
		{name: "a network name that no plugin accepts", break_: func(m machine) { m.conf("10-flannel.conflist", `{"name": "a b", "plugins": [{"type": "bridge"}]}`) }, reason: cni.ConfigInvalid,
			says: first + `: the network's name "a b" is not allowed`},
		{name: "a type that is a path", break_: func(m machine) {
			m.conf("10-flannel.conflist", `{"name": "a", "plugins": [{"type": "../../bin/sh"}]}`)
		}, reason: cni.ConfigInvalid,
			says: first + `: the plugin type "../../bin/sh" is not the name of a file`},
		{name: "a broken first file decides although the second is fine, as in containerd", break_: func(m machine) { m.conf("00-broken.json", "{") }, reason: cni.ConfigInvalid,
			says: "/etc/cni/net.d/00-broken.json: error parsing configuration: unexpected end of JSON input"},
		{name: "a link that leads nowhere", break_: func(m machine) { m.link("/etc/cni/net.d/00-gone.conf", "/etc/kubernetes/cni.conf") }, reason: cni.ConfigInvalid,
			says: "/etc/cni/net.d/00-gone.conf is a link that leads nowhere"},
		{name: "a link to a folder", break_: func(m machine) { m.link("/etc/cni/net.d/00-dir.conf", "/opt") }, reason: cni.ConfigInvalid,
			says: "read /etc/cni/net.d/00-dir.conf: not a regular file"},
		{name: "links in a circle", break_: func(m machine) { m.link("/etc/cni/net.d/00-a.conf", "00-a.conf") }, reason: cni.ConfigInvalid,
			says: "open /etc/cni/net.d/00-a.conf: too many levels of symbolic links"},
		{name: "a pipe", break_: func(m machine) {
			m.must(unix.Mkfifo(filepath.Join(m.root, "etc/cni/net.d/00-pipe.conf"), 0o600))
		}, reason: cni.ConfigInvalid,
			says: "read /etc/cni/net.d/00-pipe.conf: not a regular file"},
		{name: "a broken file in the network's folder", break_: func(m machine) { m.conf("cbr0/10-extra.conf", "{}") }, reason: cni.ConfigInvalid,
			says: "/etc/cni/net.d/cbr0/10-extra.conf: error parsing configuration: missing 'type'"},
		{name: "binaries that are missing are all named, sorted", break_: func(m machine) { m.remove("/opt/cni/bin/portmap"); m.remove("/opt/cni/bin/bridge") }, reason: cni.PluginMissing,
			says: first + " needs bridge, portmap, not found in /opt/cni/bin, /usr/lib/cni"},
		{name: "no binary at all", break_: func(m machine) { m.remove("/opt/cni") }, reason: cni.PluginMissing,
			says: first + " needs bridge, flannel, host-local, portmap, not found in /opt/cni/bin, /usr/lib/cni"},
		{name: "a folder in place of a binary", break_: func(m machine) { m.remove("/opt/cni/bin/bridge"); m.mkdir("/opt/cni/bin/bridge") }, reason: cni.PluginMissing,
			says: first + " needs bridge, not found in /opt/cni/bin, /usr/lib/cni"},
		{name: "a binary that is a link to nowhere", break_: func(m machine) { m.remove("/opt/cni/bin/bridge"); m.link("/opt/cni/bin/bridge", "/usr/bin/bridge") }, reason: cni.PluginMissing,
			says: first + " needs bridge, not found in /opt/cni/bin, /usr/lib/cni"},
		{name: "binaries without the right to execute", break_: func(m machine) { m.chmod("/opt/cni/bin/bridge", 0o644); m.chmod("/opt/cni/bin/portmap", 0o600) }, reason: cni.PluginNotExecutable,
			says: first + " needs /opt/cni/bin/bridge (no right to execute), /opt/cni/bin/portmap (no right to execute)"},
		{name: "a binary whose copy was cut short", break_: func(m machine) { m.write("/opt/cni/bin/bridge", "", 0o755) }, reason: cni.PluginNotExecutable,
			says: first + " needs /opt/cni/bin/bridge (empty file)"},
		{name: "a binary in a later folder does not help one in an earlier folder", break_: func(m machine) {
			m.chmod("/opt/cni/bin/bridge", 0o644)
			m.write("/usr/lib/cni/bridge", "\x7fELF", 0o755)
		}, reason: cni.PluginNotExecutable,
			says: first + " needs /opt/cni/bin/bridge (no right to execute)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newMachine(t, "flannel-0.26", flannelNeeds...)
			tc.break_(m)
			got := m.look()
			if got.Verdict != health.Fatal || got.Reason != tc.reason || got.Message != tc.says {
				t.Errorf("got  %s %s: %s\nwant fatal %s: %s", got.Verdict, got.Reason, got.Message, tc.reason, tc.says)
			}
			if again := m.look(); again != got {
				t.Errorf("the next look says %+v", again)
			}
		})
	}
}

func TestWell(t *testing.T) {
	for _, tc := range []struct {
		name  string
		shape func(machine)
	}{
		{name: "a broken second file is nobody's business", shape: func(m machine) { m.conf("99-broken.conf", "{") }},
		{name: "a binary in the second folder", shape: func(m machine) {
			m.remove("/opt/cni/bin/bridge")
			m.write("/usr/lib/cni/bridge", "\x7fELF", 0o755)
		}},
		{name: "a folder of a binary's name in the first folder does not hide the binary in the second", shape: func(m machine) {
			m.remove("/opt/cni/bin/bridge")
			m.mkdir("/opt/cni/bin/bridge")
			m.write("/usr/lib/cni/bridge", "\x7fELF", 0o755)
		}},
		{name: "a binary behind absolute links, as on image-based systems", shape: func(m machine) {
			m.remove("/opt/cni/bin/bridge")
			m.write("/var/opt/plugins/bridge-1.6", "\x7fELF", 0o755)
			m.link("/opt/cni/bin/bridge", "/var/opt/plugins/bridge-1.6")
		}},
		{name: "a configuration behind an absolute link", shape: func(m machine) {
			m.must(os.Rename(filepath.Join(m.root, "etc/cni/net.d"), filepath.Join(m.root, "var/net.d")))
			m.link("/etc/cni/net.d", "/var/net.d")
		}},
		{name: "the folder of another network", shape: func(m machine) { m.conf("other/10-extra.conf", "{}") }},
		{name: "the network's folder where only inlined plugins count", shape: func(m machine) {
			m.conf("10-flannel.conflist", `{"name": "cbr0", "loadOnlyInlinedPlugins": true, "plugins": [{"type": "bridge"}]}`)
			m.conf("cbr0/10-extra.conf", "{}")
		}},
		{name: "a delegate that replaces flannel's own", shape: func(m machine) {
			m.conf("10-flannel.conflist", `{"name": "cbr0", "plugins": [{"type": "flannel", "delegate": {"type": "macvlan"}, "ipam": {"type": "dhcp"}}]}`)
			m.write("/opt/cni/bin/macvlan", "\x7fELF", 0o755)
			m.write("/opt/cni/bin/dhcp", "\x7fELF", 0o755)
			m.remove("/opt/cni/bin/bridge")
			m.remove("/opt/cni/bin/host-local")
		}},
		{name: "a delegate of a shape of its own", shape: func(m machine) {
			m.conf("10-flannel.conflist", `{"name": "cbr0", "plugins": [{"type": "bridge", "delegate": ["x"]}]}`)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newMachine(t, "flannel-0.26", flannelNeeds...)
			tc.shape(m)
			if got := m.look(); got.Verdict != health.OK {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestApplicability(t *testing.T) {
	m := newMachine(t, "")
	m.remove("/var")
	m.remove("/opt")
	if got := m.look(); got.Verdict != health.NotApplicable {
		t.Errorf("a machine without any sign of containers: %+v", got)
	}
	required := func(o *cni.ConfigOptions) { o.Required = true }
	if got := m.look(required); got.Reason != cni.ConfigMissing {
		t.Errorf("the same where CNI is required: %+v", got)
	}
	m.mkdir("/opt/cni/bin")
	m.mkdir("/usr/lib/cni")
	if got := m.look(); got.Verdict != health.NotApplicable {
		t.Errorf("plugins are installed, as by tools for single containers, but there is no kubelet: %+v", got)
	}
	for _, sign := range []string{"/var/lib/kubelet", "/etc/cni/net.d"} {
		m := newMachine(t, "")
		m.remove("/var")
		m.remove("/opt")
		m.mkdir(sign)
		if got := m.look(); got.Reason != cni.ConfigMissing {
			t.Errorf("a machine that has %s: %+v", sign, got)
		}
	}
}

func TestOptionsSayWhereToLook(t *testing.T) {
	m := newMachine(t, "")
	m.write("/etc/k3s/net.d/10-net.conflist", `{"name": "n", "plugins": [{"type": "bridge"}]}`, 0o600)
	m.write("/usr/libexec/k3s/bridge", "\x7fELF", 0o755)
	got := m.look(func(o *cni.ConfigOptions) { o.ConfigDir, o.BinDirs = "/etc/k3s/net.d", []string{"/usr/libexec/k3s"} })
	if got.Verdict != health.OK {
		t.Errorf("%+v", got)
	}
}

// What cannot be read says nothing of the network.
func TestWithoutTheRightToReadItIsUnknown(t *testing.T) {
	for _, tc := range []struct {
		name           string
		close          func(machine)
		reason, naming string
	}{
		{name: "the configuration", close: func(m machine) { m.chmod("/etc/cni/net.d/10-flannel.conflist", 0o600) }, reason: cni.ConfigUnreadable, naming: "open /etc/cni/net.d/10-flannel.conflist: permission denied"},
		{name: "its folder", close: func(m machine) { m.chmod("/etc/cni/net.d", 0o700) }, reason: cni.ConfigUnreadable, naming: "open /etc/cni/net.d: permission denied"},
		{name: "the network's folder", close: func(m machine) { m.conf("cbr0/x.conf", "{}"); m.chmod("/etc/cni/net.d/cbr0", 0o700) }, reason: cni.ConfigUnreadable, naming: "open /etc/cni/net.d/cbr0: permission denied"},
		{name: "the plugins", close: func(m machine) { m.chmod("/opt/cni", 0o700) }, reason: cni.PluginUnreadable, naming: "/opt/cni/bin/bridge: permission denied"},
		{name: "the folder whose absence would say that CNI does not apply", close: func(m machine) { m.remove("/etc"); m.chmod("/var/lib", 0o700) }, reason: cni.ConfigUnreadable, naming: "/var/lib/kubelet: permission denied"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newMachine(t, "flannel-0.26", flannelNeeds...)
			if _, err := os.Stat(filepath.Join(m.root, "etc/cni/net.d/10-flannel.conflist")); err != nil {
				t.Fatal(err)
			}
			m.chmod("/etc/cni/net.d/10-flannel.conflist", 0o644)
			m.must(os.Chmod(filepath.Dir(m.root), 0o755))
			tc.close(m)
			var got health.Result
			asNobody(t, func() { got = m.look() })
			if got.Verdict != health.Unknown || got.Reason != tc.reason || !strings.Contains(got.Message, tc.naming) {
				t.Errorf("%+v, want %s naming %q", got, tc.reason, tc.naming)
			}
		})
	}
}

// asNobody runs f with the file rights of an unprivileged user. These belong to the thread, which ends with it.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := unix.Setfsuid(65534); err != nil {
			done <- fmt.Errorf("setfsuid: %w", err)
			return
		}
		f()
		done <- nil
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func FuzzConfiguration(f *testing.F) {
	fixtures, err := filepath.Glob("testdata/*-*/*.conf*")
	if err != nil || len(fixtures) < 5 {
		f.Fatal(fixtures, err)
	}
	for _, path := range fixtures {
		content, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content, strings.HasSuffix(path, "list"))
	}
	f.Fuzz(func(t *testing.T, content []byte, list bool) {
		m := machine{t: t, root: t.TempDir()}
		name := "10-fuzz.conf"
		if list {
			name += "list"
		}
		m.conf(name, string(content))
		m.mkdir("/opt/cni/bin")
		if got := m.look(); got.Verdict != health.Fatal {
			t.Errorf("without a single plugin: %+v", got)
		}
	})
}
