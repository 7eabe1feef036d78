package config_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/config/strict"
	"github.com/fettle-dev/fettle/internal/probes/catalogue"
)

// everyFault has one of every kind of fault, many beside each other. What is wrong in a line, its comment says: after
// each "!" the key, and how the words begin that say what is wrong.
const everyFault = `nodeName: No_Node             # ! nodeName: "No_Node" cannot be the name of a Node
kubeconfig: [a]               # ! kubeconfig: is a list
stateDir: var/lib             # ! stateDir: "var/lib" is not an absolute path
hostroot: /                   # ! hostroot: unknown key "hostroot"; did you mean "hostRoot"?
heartbeat:
  interval: 50s               # ! heartbeat.interval: the interval 50s is not shorter than the lease duration 40.5s
  leaseDuration: 40500ms      # ! heartbeat.leaseDuration: 40.5s is not a whole number of seconds
  statusTimeout: 5            # ! heartbeat.statusTimeout: "5" has no unit
log:
  level: loud                 # ! log.level: "loud" is not one of the allowed values
  format: 7                   # ! log.format: is the number "7", not text
log:                          # ! log: is set a second time; the first is in line 9
  level: quiet                # ! log.level: "quiet" is not one of the allowed values
endpoints:
  socket: &here run/s         # ! : anchor &here: anchors are not supported ! endpoints.socket: "run/s" is not an absolute path
  statusFile: *here           # ! : alias *here: aliases are not supported
  metricsAddress: localhost:80 # ! endpoints.metricsAddress: "localhost" is not an IP address
  allowRemote: !!bool "yes"   # ! : tag "!!bool": tags are not supported ! endpoints.allowRemote: "yes" is not a truth value
checks:
- name: disc                  # ! checks[0].name: unknown check "disc"
  interval: 10ms              # ! checks[0].interval: "10ms" is too small
  whatever: of a kind that nobody knows
- interval: 48h               # ! checks[1].name: is missing ! checks[1].interval: "48h" is too large
- kubelet                     # ! checks[2]: is the text "kubelet"
- name: exec                  # ! checks[3].name: "exec" is a kind of which checks are made
  command: [bin/raid]         # ! checks[3].command[0]: "bin/raid" is a relative path
- name: RAID                  # ! checks[4].name: "RAID" cannot be the name of a check ! checks[4].command: names no command
  kind: exec
  env: [A=b, s3cret, 5]       # ! checks[4].env[1]: is not of the form NAME=value ! checks[4].env[2]: is not what is allowed
- name: raid
  kind: exce                  # ! checks[5].kind: unknown kind "exce"
  condition: DiskPressure     # ! checks[5].condition: "DiskPressure" is a condition of the kubelet's
- name: raid                  # ! checks[6].name: check "raid" is listed a second time; the first is in line 30 ! checks[6].command: names no command
  kind: exec
  timeout: 2m                 # ! checks[6].timeout: the timeout 2m0s is not shorter than the interval 1m0s
  dependsOn: [raid2, kubelet] # ! checks[6].dependsOn[0]: unknown check "raid2"
  colour: red                 # ! checks[6].colour: unknown key "colour"
- name: api
  kind: http
  url: ftp://a/               # ! checks[api].url: is not a URL that can be asked for
  interval: often             # ! checks[api].interval: "often" is not a duration
  headers: ["s3cret", "A: b", "B"] # ! checks[api].headers[0]: is not a header ! checks[api].headers[2]: is not a header
  status: [200-204, 99]       # ! checks[api].status[1]: "99" is not a status
  reason: broken              # ! checks[api].reason: "broken" is not a reason
  dependsOn: [api, raid, registry] # ! checks[api].dependsOn[0]: the check depends on itself
  flapping:
    changes: 2                # ! checks[api].flapping.changes: 2 changes are those of a check that breaks and is repaired
    within: [1h]              # ! checks[api].flapping.within: is a list
- name: registry              # a cycle beside a name that is there twice, and one beside that
  kind: tcp
  address: registry           # ! checks[registry].address: "registry" is not an address with a port
  dependsOn: [api]            # ! checks[registry].dependsOn: checks depend on each other: api → registry → api
- name: data                  # ! checks[data].path: is missing
  kind: mount
  options: ["nodev,nosuid", ro] # ! checks[data].options[0]: "nodev,nosuid" is not one option ! checks[data].options[1]: "ro" contradicts
  dependsOn: [scratch]
- name: scratch
  kind: mount
  path: /scratch/             # ! checks[scratch].path: "/scratch/" is not as a mount table shows it
  access: readonly            # ! checks[scratch].access: "readonly" is not one of the allowed values
  spaceFatalPercent: 20       # ! checks[scratch].spaceFatalPercent: fatal at 20% is above degraded at 10%
  spaceDegradedBytes: lots    # ! checks[scratch].spaceDegradedBytes: "lots" is not a size
  dependsOn: [data]           # ! checks[scratch].dependsOn: checks depend on each other: data → scratch → data
- name: conntrack
  fatalPercent: 20            # ! checks[conntrack].fatalPercent: fatal at 20% is below degraded at
  failureThreshold: 0         # ! checks[conntrack].failureThreshold: "0" is too small
  staleAfter: 5s              # ! checks[conntrack].staleAfter: a verdict would be stale after 5s
- name: systemd-units
  units: [a.service, kubelet, a.service, 5] # ! checks[systemd-units].units[1]: "kubelet" is not the name of a unit ! checks[systemd-units].units[2]: a.service is also in units ! checks[systemd-units].units[3]: is the number "5", not text
? [odd, key]                  # ! : a key is a list
: 1
---                           # ! : a second YAML document starts here
a: 1
`

// Whoever corrects a file wants to do so once.
func TestEveryFaultOfAFileIsToldAtOnce(t *testing.T) {
	_, err := config.Parse("f.yaml", []byte(everyFault), catalogue.Kinds())
	var faults strict.Faults
	if !errors.As(err, &faults) {
		t.Fatal(err)
	}
	told := map[int][]string{} // by line
	for _, f := range faults {
		line, err := strconv.Atoi(strings.TrimPrefix(f.Where, "f.yaml:"))
		if err != nil {
			t.Errorf("without its line: %s", f)
		}
		if f.Allowed == "" && !strings.Contains(f.What, "a second time") {
			t.Errorf("without what is allowed: %s", f)
		}
		told[line] = append(told[line], fmt.Sprintf("%s: %s", f.Key, f.What))
	}
	for i, line := range strings.Split(everyFault, "\n") {
		_, comment, _ := strings.Cut(line, "# ! ")
		var want []string
		if comment != "" {
			want = strings.Split(comment, " ! ")
		}
		got := told[i+1]
		same := len(got) == len(want)
		for _, w := range want {
			same = same && containsPrefix(got, w)
		}
		if !same {
			t.Errorf("line %d, %s\n\tgot  %q\n\twant %q", i+1, line, got, want)
		}
	}
	if strings.Contains(err.Error(), "s3cret") {
		t.Error("a secret is shown")
	}
}

func containsPrefix(texts []string, prefix string) bool {
	for _, text := range texts {
		if strings.HasPrefix(text, prefix) {
			return true
		}
	}
	return false
}
