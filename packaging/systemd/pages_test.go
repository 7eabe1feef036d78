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

// section is part of a page: its commands, and the configuration for the agent that it shows.
type section struct {
	commands []string
	config   string
}

// sections of a page by their headings.
func sections(t *testing.T, page string) map[string]section {
	t.Helper()
	found := map[string]section{}
	heading, inConfig := "", false
	for line := range strings.Lines(read(t, "../../docs/"+page)) {
		line = strings.TrimRight(line, "\n")
		if title, ok := strings.CutPrefix(line, "## "); ok {
			heading = title
		}
		s := found[heading]
		code, isCode := strings.CutPrefix(line, "    ")
		command, isCommand := strings.CutPrefix(code, "$ ")
		switch {
		case isCode && isCommand:
			s.commands = append(s.commands, command)
		case isCode && code == "# /etc/fettle/nodeagent.yaml":
			inConfig = true
		case !isCode:
			inConfig = false
		case inConfig:
			s.config += code + "\n"
		}
		found[heading] = s
	}
	return found
}

// follow runs a section's commands as a reader does: in order, as root in the checkout, those with kubectl beside an
// administrator's kubeconfig. A reader whom status tells that something is not yet so looks again.
func (f *fixture) follow(t *testing.T, page map[string]section, heading string, replace ...string) {
	t.Helper()
	s, there := page[heading]
	if !there || len(s.commands) == 0 {
		t.Fatalf("the page has no commands under %q", heading)
	}
	for _, command := range s.commands {
		command = strings.NewReplacer(replace...).Replace(command)
		if strings.HasPrefix(command, "nodeagent status") {
			f.await(t, command+" has nothing to complain of", func(ctx context.Context) bool {
				_, err := f.Exec(ctx, "bash", "-euc", command)
				return err == nil
			})
			continue
		}
		if out, err := f.shell(t.Context(), command); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
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

func TestThePagesForAMachineAlone(t *testing.T) {
	p, err := port.Reserve(port.ReuseAddress)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Release)
	page := sections(t, "standalone.md")
	config := strings.ReplaceAll(page["Installing"].config, ":9190", ":"+p.String())
	if !strings.Contains(config, "metricsAddress: 127.0.0.1:"+p.String()) {
		t.Fatalf("the page's configuration is\n%s", config)
	}
	f := &fixture{Machine: machines.ForTest(t, machines.Options{
		Name: "reader", Binds: checkoutFor(t), Files: []machines.File{{Path: "/etc/fettle/nodeagent.yaml", Text: config}},
	})}
	for _, heading := range []string{"Installing", "Asking how the machine is", "The journal"} {
		f.follow(t, page, heading)
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
	f.Machine = machines.ForTest(t, machines.Options{
		Name: node, Binds: checkoutFor(t),
		Files: []machines.File{
			{Path: "/etc/fettle/kubeconfig", Text: read(t, kubeconfig), Mode: 0o600},
			{Path: "/etc/fettle/nodeagent.yaml", Text: page["Installing"].config, Mode: 0o600},
		},
	})
	for _, heading := range []string{"Identity", "Installing", "Verifying", "Upgrading", "Removing it"} {
		f.follow(t, page, heading)
	}
	if got, err := f.shell(t.Context(), `kubectl get node `+node+` --output=jsonpath='{.status.conditions[*].type}'`); err != nil || strings.Contains(got, "fettle.dev/") {
		t.Errorf("after the removal the node has conditions %s, %v", got, err)
	}
}
