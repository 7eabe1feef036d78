package custom_test

import (
	"strings"
	"testing"

	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/probes/custom"
)

func TestOptionsAsTheyAreWritten(t *testing.T) {
	kinds := []probes.Kind{custom.Exec, custom.HTTP, custom.TCP, custom.File}
	for _, tc := range []struct{ name, entry, want string }{
		{name: "exec", entry: "kind: exec, command: [/bin/true, x], env: [A=b], dir: /tmp, reason: RaidDegraded2"},
		{name: "exec without a command", entry: "kind: exec", want: "checks[mine].command: names no command (allowed: a command and its arguments, e.g. [/usr/local/bin/check-raid, --all])"},
		{name: "exec of a relative path", entry: "kind: exec, command: [bin/x]", want: `checks[mine].command[0]: "bin/x" is a relative path`},
		{name: "exec with an environment without names", entry: "kind: exec, command: [x], env: [A=b, s3cret]", want: "checks[mine].env[1]: is not of the form NAME=value"},
		{name: "a reason that is none", entry: "kind: exec, command: [x], reason: raid-degraded", want: `checks[mine].reason: "raid-degraded" is not a reason`},
		{name: "a reason of every check", entry: "kind: exec, command: [x], reason: CheckTimedOut", want: `"CheckTimedOut" is a reason with a meaning of its own`},
		{name: "a reason of the kind", entry: "kind: exec, command: [x], reason: ExecKilled", want: `checks[mine].reason: "ExecKilled" is a reason of the kind itself`},
		{name: "http", entry: `kind: http, url: "https://a.b/c", status: [200, 300-399], body: "^ok$", headers: ["Authorization: Bearer x"], caFile: /etc/ca.pem`},
		{name: "http without a URL", entry: "kind: http", want: "checks[mine].url: is missing"},
		{name: "http of something else", entry: `kind: http, url: "ftp://a"`, want: "checks[mine].url: is not a URL that can be asked for"},
		{name: "http with a status that is none", entry: `kind: http, url: "http://a", status: [299-200]`, want: "checks[mine].status[0]: \"299-200\" is not a status or a range of them"},
		{name: "http with a body that is none", entry: `kind: http, url: "http://a", body: "("`, want: "checks[mine].body: \"(\" is not a regular expression: missing closing ): `(`"},
		{name: "http with a header that is none", entry: `kind: http, url: "http://a", headers: ["s3cret"]`, want: "checks[mine].headers[0]: is not a header"},
		{name: "http with a header in a header", entry: `kind: http, url: "http://a", headers: ["A: b\r\nC: s3cret"]`, want: "checks[mine].headers[0]: is not a header"},
		{name: "http with certificates", entry: `kind: http, url: "http://a", caFile: /x`, want: "checks[mine].url: is not https, but certificates are spoken of"},
		{name: "http that trusts all and not", entry: `kind: http, url: "https://a", caFile: /x, insecureSkipVerify: true`, want: "checks[mine].insecureSkipVerify: takes any certificate"},
		{name: "http of a body without one", entry: `kind: http, url: "http://a", method: HEAD, body: x`, want: "checks[mine].body: is asked for, but an answer to HEAD has none"},
		{name: "tcp", entry: `kind: tcp, address: "[fd00::1]:443"`},
		{name: "tcp without an address", entry: "kind: tcp", want: `checks[mine].address: "" is not an address with a port`},
		{name: "tcp without a port", entry: "kind: tcp, address: a.b", want: `checks[mine].address: "a.b" is not an address with a port`},
		{name: "file", entry: "kind: file, path: /x, maxAge: 1h, minSize: 1Ki, content: x"},
		{name: "file without a path", entry: "kind: file", want: "checks[mine].path: is missing"},
		{name: "file that is absent and old", entry: "kind: file, path: /x, state: absent, maxAge: 1h", want: "checks[mine].state: asks for a file that should not exist"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := config.Parse("nodeagent.yaml", []byte("checks: [{name: mine, "+tc.entry+"}]\n"), kinds)
			switch {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("%v, want %s", err, tc.want)
			case err != nil && strings.Contains(err.Error(), "s3cret"):
				t.Errorf("a secret is shown: %v", err)
			}
		})
	}
}
