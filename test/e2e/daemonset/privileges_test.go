package daemonset

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// privilegesConfig has every kind of check whose row in docs/privileges.md is about checks of one's own.
const privilegesConfig = `checks:
- {name: interfaces, interfaces: [fettle0]}
- {name: a-mount, kind: mount, path: /, writeCheck: true}
- {name: of-the-image, kind: exec, command: [/usr/bin/nodeagent, version]}
- {name: of-the-machine, kind: exec, command: [/usr/bin/true]}
- {name: a-port, kind: tcp, address: "127.0.0.1:10248"}
- {name: a-page, kind: http, url: "http://127.0.0.1:10248/healthz"}
- {name: a-file, kind: file, path: /etc/hostname}
`

// everything is the name of the pod that lacks nothing.
const everything = ""

// proof says what is wrong with what a pod without one privilege saw; a pod with every one is given beside it.
type proof func(without, with sight) error

// proofs are those of every row of docs/privileges.md: by who needs a privilege, and by the privilege that is missing.
// What needs none is proved on the pod that has everything.
var proofs = map[string]map[string]proof{
	"cni-config":                         {"/host": doesNotStart, "runAsUser": unknown("cni-config")},
	"service-proxy":                      {"hostNetwork": not("service-proxy", "ok")},
	"interfaces, default-route":          {"hostNetwork": all(not("interfaces", "ok"), differs("default-route"))},
	"root-filesystem, filesystems":       {"/host": doesNotStart},
	"mount":                              {"/host": all(doesNotStart, given(reason("a-mount", "MountNotCheckable")))},
	"clock":                              {everything: not("clock", "unknown")},
	"process-ids, file-handles":          {"/host": doesNotStart},
	"conntrack":                          {"/host": doesNotStart, "hostNetwork": reason("conntrack", "OK")},
	"container-runtime, runtime-network": {"/host": doesNotStart, "runAsUser": all(unknown("container-runtime"), unknown("runtime-network"))},
	"kubelet":                            {"hostNetwork": not("kubelet", "ok"), "/host": doesNotStart},
	"systemd-units":                      {"/run/dbus": unknown("systemd-units"), "runAsUser": unknown("systemd-units"), "appArmorProfile": unlessMediated("systemd-units")},
	"agent-config":                       {"/etc/fettle": runsByDefaults},
	"agent-heartbeat":                    {"hostNetwork": misses("API server"), "token": alone},
	"exec":                               {everything: all(reason("of-the-image", "OK"), reason("of-the-machine", "ExecNotRunnable"))},
	"http, tcp":                          {"hostNetwork": all(not("a-page", "ok"), not("a-port", "ok"))},
	"file":                               {"/host": doesNotStart},
	"publishing: conditions, Host, Lease, events": {"hostNetwork": misses("API server"), "token": alone},
	"units that are started on the machine": {
		"/run/dbus": misses("transient unit"), "runAsUser": misses("transient unit"), "appArmorProfile": unlessMediated("systemd-units"),
	},
	"memory over restarts, key for sealed values":             {"/var/lib/fettle": misses("state folder"), "runAsUser": misses("state folder")},
	"`nodeagent status`, on the machine and in the container": {"/run/fettle": nobodyToAsk},
	"packages and their logs":                                 {"/var/lib/skyhook": nothingIsWritten("/var/lib/skyhook"), "/var/log/skyhook": nothingIsWritten("/var/log/skyhook")},
}

// privileges : a pod for each privilege, which is the DaemonSet's but for it, sees what docs/privileges.md says it does.
func privileges(t *testing.T, w *world) {
	needs := privilegeRows(t, w)
	if got, want := slices.Sorted(maps.Keys(proofs)), slices.Sorted(maps.Keys(needs)); !slices.Equal(got, want) {
		t.Fatalf("there are proofs for\n%s\nthe page has the rows\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	lacked := map[string]bool{everything: true}
	for _, privileges := range needs {
		for _, p := range privileges {
			lacked[p] = true
		}
	}
	// What only the machine has, and what only root may read; and no way out of the pod network.
	w.guest(t, "sh", "-euc", "ip link add fettle0 type dummy; ip address add 10.99.0.1/32 dev fettle0; ip link set fettle0 up; "+
		"ip route add default dev fettle0 metric 4000; chmod 700 /etc/cni/net.d; iptables --insert FORWARD --in-interface cni0 --jump DROP")
	defer w.guest(t, "sh", "-euc", "ip link delete fettle0; chmod 755 /etc/cni/net.d; iptables --delete FORWARD --in-interface cni0 --jump DROP")
	seen := w.sights(t, slices.Sorted(maps.Keys(lacked)))
	for who, privileges := range needs {
		if len(privileges) == 0 {
			privileges = []string{everything}
		}
		if got := slices.Sorted(maps.Keys(proofs[who])); !slices.Equal(got, slices.Sorted(slices.Values(privileges))) {
			t.Errorf("of %s there are proofs for %q, the page lists %q", who, got, privileges)
			continue
		}
		for _, p := range privileges {
			if err := proofs[who][p](seen[p], seen[everything]); err != nil {
				t.Errorf("%s without %q: %v", who, p, err)
			}
		}
	}
}

// privilegeRows are who needs what, by the second table of docs/privileges.md.
func privilegeRows(t *testing.T, w *world) map[string][]string {
	t.Helper()
	page, err := os.ReadFile(w.Path("docs/privileges.md"))
	must(t, err)
	_, table, found := strings.Cut(string(page), "\n| Check or function | Needs | Without it |\n|---|---|---|\n")
	if !found {
		t.Fatal("docs/privileges.md has no table of who needs what")
	}
	row := regexp.MustCompile(`^\| (.+?) \|(.*?)\|`)
	needs := map[string][]string{}
	for line := range strings.Lines(table) {
		cells := row.FindStringSubmatch(line)
		if cells == nil {
			break
		}
		needs[cells[1]] = strings.Fields(strings.ReplaceAll(cells[2], "`", " "))
	}
	return needs
}

// sight is what the agent's commands said in one pod.
type sight struct {
	w                        *world
	checks                   map[string]check
	check, preflight, status string // what the containers of those commands wrote
	run                      string // the agent's own log, where it is looked at
}

type check struct{ Name, Verdict, Reason, Message string }

// commands are what is run in the pod that lacks a privilege; "run" is the agent itself. Of one that is not listed, what is
// documented is about the machine.
var commands = map[string][]string{
	everything:        {"check", "preflight", "status"},
	"hostNetwork":     {"check", "preflight"},
	"runAsUser":       {"check", "preflight"},
	"appArmorProfile": {"check"},
	"token":           {"preflight"},
	"/host":           {"check", "preflight"},
	"/run/dbus":       {"check", "preflight"},
	"/run/fettle":     {"status"},
	"/var/lib/fettle": {"preflight"},
	"/etc/fettle":     {"check", "run"},
}

// sights makes the pods one after the other, waits until their commands have ended, and gives what they said by what each
// pod lacks.
func (w *world) sights(t *testing.T, lacked []string) map[string]sight {
	t.Helper()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "privileges", Namespace: namespace}, Data: map[string]string{"nodeagent.yaml": privilegesConfig}}
	must(t, w.Client.Create(t.Context(), config))
	all := map[string]sight{}
	for i, privilege := range lacked {
		all[privilege] = sight{w: w}
		if len(commands[privilege]) > 0 {
			all[privilege] = w.sight(t, fmt.Sprintf("without-%d", i), privilege)
		}
	}
	return all
}

func (w *world) sight(t *testing.T, name, privilege string) sight {
	t.Helper()
	pod := w.podWithout(t, privilege)
	pod.Name = name
	must(t, w.Client.Create(t.Context(), pod))
	defer func() { _ = w.Client.Delete(context.WithoutCancel(t.Context()), pod, client.GracePeriodSeconds(0)) }()
	w.await(t, "the commands of the pod without "+privilege, w.hasEnded(name))
	s := sight{w: w, checks: map[string]check{}}
	said := map[string]*string{"check": &s.check, "preflight": &s.preflight, "status": &s.status, "run": &s.run}
	for _, c := range commands[privilege] {
		*said[c] = w.kubectl(t, "logs", "--namespace="+namespace, name, "--container="+c)
		t.Logf("%s without %q:\n%s", c, privilege, *said[c])
	}
	var answer struct{ Checks []check }
	if json.Unmarshal([]byte(s.check), &answer) == nil {
		for _, c := range answer.Checks {
			s.checks[c.Name] = c
		}
	}
	return s
}

// podWithout is the DaemonSet's pod with one privilege taken away and commands in place of the agent.
func (w *world) podWithout(t *testing.T, privilege string) *corev1.Pod {
	t.Helper()
	manifest, err := os.ReadFile(w.Path("deploy/daemonset/30-daemonset.yaml"))
	must(t, err)
	var shipped appsv1.DaemonSet
	must(t, yaml.UnmarshalStrict(manifest, &shipped))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, Spec: shipped.Spec.Template.Spec}
	pod.Spec.NodeName, pod.Spec.RestartPolicy = nodeName, corev1.RestartPolicyNever
	for i, v := range pod.Spec.Volumes {
		if v.ConfigMap != nil {
			pod.Spec.Volumes[i].ConfigMap.Name = "privileges"
		}
	}
	agent := &pod.Spec.Containers[0]
	security := agent.SecurityContext
	nobody := int64(65532)
	switch privilege {
	case everything:
	case "hostNetwork":
		pod.Spec.HostNetwork = false
	case "token":
		pod.Spec.AutomountServiceAccountToken = new(bool)
	case "runAsUser":
		security.RunAsUser, security.RunAsGroup = &nobody, &nobody
	case "appArmorProfile":
		security.AppArmorProfile = nil
	default:
		mounts := len(agent.VolumeMounts)
		agent.VolumeMounts = slices.DeleteFunc(agent.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == privilege })
		if len(agent.VolumeMounts) == mounts {
			t.Fatalf("the DaemonSet has no privilege %s", privilege)
		}
	}
	const config = "--config=/etc/fettle/nodeagent.yaml"
	args := map[string][]string{
		"check": {"check", config, "--output=json"}, "preflight": {"preflight", "--output=json"}, "status": {"status"}, "run": {"run", config},
	}
	shippedAgent := agent.DeepCopy()
	pod.Spec.Containers = nil
	for _, name := range commands[privilege] {
		c := *shippedAgent.DeepCopy()
		c.Name, c.Args = name, args[name]
		if name == "run" {
			pod.Spec.AutomountServiceAccountToken = new(bool) // the machine's own agent speaks for it
			// Of two variables the later counts. The socket and the state folder are the machine's own agent's.
			c.Env = append(c.Env, corev1.EnvVar{Name: "FETTLE_ENDPOINTS_SOCKET"}, corev1.EnvVar{Name: "FETTLE_ENDPOINTS_STATUS_FILE"},
				corev1.EnvVar{Name: "FETTLE_STATE_DIR", Value: "/nowhere"})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	return pod
}

// hasEnded is a look whether all commands of a pod have, and its agent, if it runs one, has looked at the machine.
func (w *world) hasEnded(name string) look {
	return func(ctx context.Context) error {
		var pod corev1.Pod
		if err := w.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &pod); err != nil {
			return err
		}
		if len(pod.Status.ContainerStatuses) < len(pod.Spec.Containers) {
			return fmt.Errorf("pod %s is %s", name, pod.Status.Phase)
		}
		for _, c := range pod.Status.ContainerStatuses {
			if c.Name == "run" {
				out, err := w.ControlPlane.Kubectl(ctx, "logs", "--namespace="+namespace, name, "--container=run")
				if err == nil && !strings.Contains(out, `"check":"root-filesystem"`) {
					err = fmt.Errorf("the agent without a configuration has said %s", out)
				}
				if err != nil {
					return err
				}
			} else if c.State.Terminated == nil {
				return fmt.Errorf("command %s of pod %s: %+v", c.Name, name, c.State)
			}
		}
		return nil
	}
}

func all(proofs ...proof) proof {
	return func(without, with sight) error {
		for _, p := range proofs {
			if err := p(without, with); err != nil {
				return err
			}
		}
		return nil
	}
}

// doesNotStart : what needs the machine's root folder is not there at all, and the agent says why.
func doesNotStart(without, _ sight) error {
	if !strings.Contains(without.check, "open host root: open /host: no such file or directory") || !strings.Contains(without.preflight, "mount the machine's root file system") {
		return fmt.Errorf("it says %s", without.check)
	}
	return nil
}

// unknown : the check cannot tell, and could.
func unknown(name string) proof {
	return func(without, with sight) error {
		if was, is := with.checks[name], without.checks[name]; is.Verdict != "unknown" || was.Verdict == "unknown" {
			return fmt.Errorf("%+v, and with it %+v", is, was)
		}
		return nil
	}
}

// not : the check's verdict is another one, and with the privilege it is that one.
func not(name, verdict string) proof {
	return func(without, with sight) error {
		was, is := with.checks[name], without.checks[name]
		needless := was == is // nothing is taken away
		if is.Verdict == verdict || is.Name == "" || !needless && was.Verdict != verdict {
			return fmt.Errorf("%+v, and with it %+v", is, was)
		}
		return nil
	}
}

// differs : the check sees something else.
func differs(name string) proof {
	return func(without, with sight) error {
		if was, is := with.checks[name], without.checks[name]; was == is || is.Name == "" {
			return fmt.Errorf("%+v, and with it %+v", is, was)
		}
		return nil
	}
}

func reason(name, want string) proof {
	return func(without, _ sight) error {
		if is := without.checks[name]; is.Reason != want {
			return fmt.Errorf("%+v, want reason %s", is, want)
		}
		return nil
	}
}

// given is a proof on the pod that lacks nothing.
func given(p proof) proof { return func(_, with sight) error { return p(with, with) } }

// unlessMediated : the machine's kernel does not let AppArmor speak of D-Bus, so that the profile changes nothing; where it
// does, the check is unknown.
func unlessMediated(name string) proof {
	return func(without, with sight) error {
		if _, err := without.w.vm.Exec(context.Background(), "test", "-e", "/sys/kernel/security/apparmor/features/dbus"); err == nil {
			return unknown(name)(without, with)
		}
		if was, is := with.checks[name], without.checks[name]; was.Verdict != is.Verdict {
			return fmt.Errorf("%+v, and with it %+v", is, was)
		}
		return nil
	}
}

// misses : preflight finds that something is missing, and with the privilege that it is there.
func misses(need string) proof {
	return func(without, with sight) error {
		if is, found := finding(without, need); !found || is {
			return fmt.Errorf("preflight does not miss %q: %s", need, without.preflight)
		}
		if was, found := finding(with, need); !found || !was {
			return fmt.Errorf("preflight misses %q with it too: %s", need, with.preflight)
		}
		return nil
	}
}

func finding(s sight, need string) (ok, found bool) {
	var answer struct {
		Findings []struct {
			Need string
			OK   bool
		}
	}
	if json.Unmarshal([]byte(s.preflight), &answer) != nil {
		return false, false
	}
	for _, f := range answer.Findings {
		if f.Need == need {
			return f.OK, true
		}
	}
	return false, false
}

// alone : the agent knows of no cluster.
func alone(without, _ sight) error {
	if !strings.Contains(without.preflight, "running without a cluster") {
		return fmt.Errorf("preflight says %s", without.preflight)
	}
	return nil
}

func runsByDefaults(without, _ sight) error {
	if !strings.Contains(without.check, "/etc/fettle/nodeagent.yaml") || !strings.Contains(without.run, `"check":"agent-config"`) {
		return fmt.Errorf("the agent says %s, and the command %s", without.run, without.check)
	}
	return nil
}

func nobodyToAsk(without, with sight) error {
	if !strings.Contains(without.status, "no agent answers") || !strings.Contains(with.status, "DaemonSet of node "+nodeName) {
		return fmt.Errorf("status says %q, and with it %q", without.status, with.status)
	}
	return nil
}

func nothingIsWritten(folder string) proof {
	return func(_, with sight) error {
		if out, err := with.w.vm.Exec(context.Background(), "find", folder, "-type", "f"); err != nil || out != "" {
			return fmt.Errorf("%s has %q (error %w)", folder, out, err)
		}
		return nil
	}
}
