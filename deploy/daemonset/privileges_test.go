package daemonset

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/fettle-dev/fettle/internal/probes/catalogue"
)

// TestPrivilegesAreThoseOfTheTable : whoever adds one says in docs/privileges.md what for.
func TestPrivilegesAreThoseOfTheTable(t *testing.T) {
	pod := podSpec(t)
	privileges, needs := tables(t)
	granted := grantedTo(t, pod)
	if !maps.Equal(granted, privileges) {
		t.Errorf("the manifest grants\n%s\nthe table says\n%s", lines(granted), lines(privileges))
	}

	needed, rows := map[string]bool{}, map[string]bool{}
	for who, what := range needs {
		for privilege := range strings.FieldsSeq(what) {
			name := strings.Trim(privilege, "`")
			needed[name] = true
			if _, ok := granted[name]; !ok {
				t.Errorf("%s needs %s, which the manifest does not grant", who, name)
			}
		}
		for one := range strings.SplitSeq(who, ", ") {
			rows[one] = true
		}
	}
	for name := range granted {
		if !needed[name] {
			t.Errorf("nobody needs %s", name)
		}
	}
	for _, kind := range catalogue.Kinds() {
		if !rows[kind.Name] {
			t.Errorf("the table has no row for the check %s", kind.Name)
		}
	}
}

// TestWhatTheContainerGivesUp : the rest of what docs/privileges.md says.
func TestWhatTheContainerGivesUp(t *testing.T) {
	pod := podSpec(t)
	if len(pod.Containers) != 1 || len(pod.InitContainers) != 0 || pod.HostPID || pod.HostIPC {
		t.Errorf("%d containers, %d before them, host PID namespace %t, host IPC namespace %t", len(pod.Containers), len(pod.InitContainers), pod.HostPID, pod.HostIPC)
	}
	c := pod.Containers[0].SecurityContext
	if *c.Privileged || *c.AllowPrivilegeEscalation || !*c.ReadOnlyRootFilesystem || c.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault ||
		!slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(c.Capabilities.Add) != 0 {
		t.Errorf("its security context is %+v", c)
	}
	for _, m := range pod.Containers[0].VolumeMounts {
		if m.SubPath != "" || m.SubPathExpr != "" {
			t.Errorf("%s is mounted by subPath: it would never change", m.MountPath)
		}
	}
}

// grantedTo are the pod's privileges and how it has them, by the names of the table.
func grantedTo(t *testing.T, pod corev1.PodSpec) map[string]string {
	t.Helper()
	granted := map[string]string{}
	if pod.HostNetwork {
		granted["hostNetwork"] = "the network namespace of the machine"
	}
	if *pod.AutomountServiceAccountToken {
		granted["token"] = "of the ServiceAccount `" + pod.ServiceAccountName + "`"
	}
	container := pod.Containers[0]
	granted["runAsUser"] = fmt.Sprint(*container.SecurityContext.RunAsUser)
	granted["appArmorProfile"] = string(container.SecurityContext.AppArmorProfile.Type)
	for _, c := range container.SecurityContext.Capabilities.Add {
		granted["CAP_"+string(c)] = "capability"
	}
	for _, port := range container.Ports {
		granted["port "+port.Name] = "reachable"
	}
	for _, m := range container.VolumeMounts {
		i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if i < 0 {
			t.Fatalf("mount %s has no volume", m.MountPath)
		}
		as := "something else"
		switch v := pod.Volumes[i]; {
		case v.HostPath != nil:
			as = "host `" + v.HostPath.Path + "`"
		case v.ConfigMap != nil:
			as = "ConfigMap `" + v.ConfigMap.Name + "`"
		}
		as += map[bool]string{true: ", read-only", false: ", writable"}[m.ReadOnly]
		if m.MountPropagation != nil {
			as += ", " + string(*m.MountPropagation)
		}
		granted[m.MountPath] = as
	}
	return granted
}

func podSpec(t *testing.T) corev1.PodSpec {
	t.Helper()
	manifest, err := os.ReadFile("30-daemonset.yaml")
	must(t, err)
	var daemonSet appsv1.DaemonSet
	must(t, yaml.UnmarshalStrict(manifest, &daemonSet))
	return daemonSet.Spec.Template.Spec
}

// tables are those of docs/privileges.md: how each privilege is had, and what each check or function needs.
func tables(t *testing.T) (privileges, needs map[string]string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/privileges.md")
	must(t, err)
	privileges, needs = map[string]string{}, map[string]string{}
	var into map[string]string
	row := regexp.MustCompile(`^\| (.+?) \|(.*?)\|`)
	for line := range strings.Lines(string(page)) {
		cells := row.FindStringSubmatch(line)
		switch {
		case cells == nil: // text, or what stands under the head of a table
		case cells[1] == "Privilege":
			into = privileges
		case cells[1] == "Check or function":
			into = needs
		default:
			name := strings.Trim(cells[1], "`")
			if _, twice := into[name]; twice {
				t.Errorf("%s stands there twice", name)
			}
			into[name] = strings.TrimSpace(cells[2])
		}
	}
	if len(privileges) == 0 || len(needs) == 0 {
		t.Fatal("docs/privileges.md has not the two tables")
	}
	return privileges, needs
}

func lines(m map[string]string) string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		all = append(all, k+": "+m[k])
	}
	return strings.Join(all, "\n")
}
