package systemd_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fettle-dev/fettle/test/machines"
	"github.com/fettle-dev/fettle/test/port"
)

// checkout is where a reader of the pages has one, with what `make build` makes.
const checkout = "/srv/fettle"

func checkoutFor(t *testing.T) []machines.Bind {
	t.Helper()
	unit, err := filepath.Abs("nodeagent.service")
	if err != nil {
		t.Fatal(err)
	}
	return []machines.Bind{
		{Source: built(t), Target: checkout + "/bin/nodeagent"},
		{Source: unit, Target: checkout + "/packaging/systemd/nodeagent.service"},
	}
}

// section is part of a page: what it has its reader do, in its order.
type section []step

// step is a command, or a file whose content a page shows below its path, which the reader writes.
type step struct{ command, path, text string }

// sections of a page by their headings.
func sections(t *testing.T, page string) map[string]section {
	t.Helper()
	found := map[string]section{}
	heading, inFile := "", false
	for line := range strings.Lines(read(t, "../../docs/"+page)) {
		line = strings.TrimRight(line, "\n")
		if title, ok := strings.CutPrefix(line, "## "); ok {
			heading = title
		}
		s := found[heading]
		code, isCode := strings.CutPrefix(line, "    ")
		command, isCommand := strings.CutPrefix(code, "$ ")
		path, isPath := strings.CutPrefix(code, "# /etc/")
		switch {
		case isCode && isCommand:
			s = append(s, step{command: command})
		case isCode && isPath:
			s = append(s, step{path: "/etc/" + path})
			inFile = true
		case !isCode:
			inFile = false
		case inFile:
			s[len(s)-1].text += code + "\n"
		}
		found[heading] = s
	}
	return found
}

// file is the content that a section shows of a file.
func (s section) file(t *testing.T, path string) string {
	t.Helper()
	for _, step := range s {
		if step.path == path {
			return step.text
		}
	}
	t.Fatalf("the page shows no %s", path)
	return ""
}

// follow does what a section says as a reader does: in order, as root in the checkout, commands with kubectl beside an
// administrator's kubeconfig. A reader whom status tells that something is not yet so looks again. Old and new
// texts of what is another here than on the page come in pairs.
func (f *fixture) follow(t *testing.T, page map[string]section, heading string, replace ...string) {
	t.Helper()
	if len(page[heading]) == 0 {
		t.Fatalf("the page has nothing to do under %q", heading)
	}
	here := strings.NewReplacer(replace...)
	for _, s := range page[heading] {
		command := here.Replace(s.command)
		switch {
		case s.path != "":
			f.edit(t, s.path, here.Replace(s.text))
		case strings.HasPrefix(command, "nodeagent status"):
			f.await(t, command+" has nothing to complain of", func(ctx context.Context) bool {
				_, err := f.Exec(ctx, "bash", "-euc", command)
				return err == nil
			})
		default:
			if out, err := f.shell(t.Context(), command); err != nil {
				t.Fatalf("%s: %v\n%s", command, err, out)
			}
		}
	}
}

// edit writes a file as an editor does: into a folder that is there.
func (f *fixture) edit(t *testing.T, path, text string) {
	t.Helper()
	if out, err := f.Exec(t.Context(), "sh", "-c", `printf %s "$2" > "$1"`, "sh", path, text); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func (f *fixture) shell(ctx context.Context, command string) (string, error) {
	if !strings.HasPrefix(command, "kubectl ") {
		return f.Exec(ctx, "bash", "-euc", "cd "+checkout+"; "+command)
	}
	cmd := exec.CommandContext(ctx, "bash", "-euc", command)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+f.cluster.Kubeconfig(), "PATH="+f.cluster.BinDir()+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// curl is that of the test machine's /usr, with its libraries, for a machine on which none is installed.
const curl = `#!/bin/sh
exec /srv/usr/lib*/ld-linux-*.so.* --library-path "/srv/usr/lib/$(uname -m)-linux-gnu" /srv/usr/bin/curl "$@"
`

func TestThePagesForAMachineAlone(t *testing.T) {
	p, err := port.Reserve(port.ReuseAddress)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Release)
	page := sections(t, "standalone.md")
	f := &fixture{Machine: machines.ForTest(t, machines.Options{
		Name:  "reader",
		Binds: append(checkoutFor(t), machines.Bind{Source: "/usr", Target: "/srv/usr"}),
		Files: []machines.File{{Path: "/usr/local/bin/curl", Mode: 0o755, Text: curl}},
	})}
	for _, heading := range []string{"Installing", "Asking how the machine is", "The journal"} {
		f.follow(t, page, heading, ":9190", ":"+p.String())
	}
	t.Run("troubleshooting", func(t *testing.T) {
		page := sections(t, "troubleshooting.md")
		for _, heading := range []string{"", "A check says what you do not believe", "The configuration is not what you wrote"} {
			f.follow(t, page, heading)
		}
	})
	for _, heading := range []string{"Changing the configuration", "Removing it"} {
		f.follow(t, page, heading)
	}
	if out, err := f.Exec(t.Context(), "sh", "-c", "ls -d /usr/bin/nodeagent /etc/systemd/system/*/nodeagent.service /etc/fettle /var/lib/fettle /run/fettle 2>/dev/null"); err == nil {
		t.Errorf("something is left: %s", out)
	}
}

func TestThePageForAMachineInACluster(t *testing.T) {
	const node = "gpu-17"
	f := &fixture{}
	kubeconfig := f.join(t, node)
	page := sections(t, "bare-metal.md")
	f.Machine = machines.ForTest(t, machines.Options{Name: node, Binds: checkoutFor(t)})
	shown := page["Identity"].file(t, "/etc/fettle/kubeconfig")
	for _, heading := range []string{"Identity", "Installing", "Verifying", "Upgrading", "Removing it"} {
		f.follow(t, page, heading, shown, read(t, kubeconfig))
		if heading == "Identity" {
			if got := f.exec(t, "stat", "--format=%a %U", "/etc/fettle/kubeconfig"); got != "600 root" {
				t.Errorf("the token can be read: %s", got)
			}
		}
	}
	if got, err := f.shell(t.Context(), `kubectl get node `+node+` --output=jsonpath='{.status.conditions[*].type}'`); err != nil || strings.Contains(got, "fettle.dev/") {
		t.Errorf("after the removal the node has conditions %s, %v", got, err)
	}
}
