package agent

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/health"
)

func TestStatusLine(t *testing.T) {
	for _, tc := range []struct {
		name   string
		report health.Report
		want   string
	}{
		{name: "undecided", want: "checks are not decided yet; published"},
		{
			name:   "well",
			report: health.Report{Decided: true, Summary: health.Summary{Verdict: health.OK}, Counts: health.Counts{OK: 3}},
			want:   "healthy: 3 ok; published",
		},
		{
			name: "worst first",
			report: health.Report{
				Decided: true, Summary: health.Summary{Verdict: health.Fatal, Reason: "CNIConfigMissing"},
				Counts: health.Counts{OK: 1, Degraded: 2, Fatal: 3, Unknown: 4, NotApplicable: 5},
			},
			want: "unhealthy (CNIConfigMissing): 3 fatal, 4 unknown, 2 degraded, 1 ok, 5 not applicable; published",
		},
		{
			name:   "no checks",
			report: health.Report{Decided: true, Summary: health.Summary{Verdict: health.NotApplicable}},
			want:   "nothing to check; published",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := statusLine(tc.report, "published"); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestJournalFields(t *testing.T) {
	for key, want := range map[string]string{
		"check": "FETTLE_CHECK", "retryEverySeconds": "FETTLE_RETRY_EVERY_SECONDS", "a-b.c": "FETTLE_A_B_C", "_x": "FETTLE__X",
	} {
		if got := journalField(nil, slog.String(key, "")).Key; got != want {
			t.Errorf("%s becomes %s, want %s", key, got, want)
		}
	}
}

func TestTheJournalsMessageHasTheAttributes(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(spoken{Handler: slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key != slog.MessageKey {
			return slog.Attr{}
		}
		return a
	}})}).With("node", "a")
	log.Info("check changed", "check", "cni", "detail", `no "file"`)
	if want := `msg="check changed node=a check=cni detail=\"no \\\"file\\\"\""` + "\n"; out.String() != want {
		t.Errorf("got  %swant %s", out.String(), want)
	}
}

func TestLogFormat(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/log")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	t.Setenv("JOURNAL_STREAM", "1:1")
	if got := formatOf(file); got != "json" {
		t.Errorf("a file gets %s", got)
	}
	if _, _, err := NewLogger(config.Log{Level: "loud", Format: "text"}); err == nil {
		t.Error("a level that is none was taken")
	}
	log, _, err := NewLogger(config.Log{Level: "warn", Format: "text"})
	if err != nil {
		t.Fatal(err)
	}
	if log.Enabled(context.Background(), slog.LevelInfo) || !log.Enabled(context.Background(), slog.LevelWarn) {
		t.Error("the level does not hold")
	}
}

// What is linked is resident: typed clientsets and informers cost an agent twice its memory. The linters look at imports
// of the agent's own packages; this looks at all that comes along.
func TestTheAgentLinksNoClientsets(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "../../cmd/nodeagent").Output()
	if err != nil {
		t.Fatal(err)
	}
	linked := strings.Fields(string(out))
	if len(linked) < 100 {
		t.Fatalf("go list says that the agent consists of %d packages", len(linked))
	}
	for _, pkg := range linked {
		for _, forbidden := range []string{
			"k8s.io/client-go/kubernetes", "k8s.io/client-go/informers", "k8s.io/client-go/tools/cache", "k8s.io/client-go/dynamic",
			"sigs.k8s.io/controller-runtime", "k8s.io/api/core/v1",
		} {
			if pkg == forbidden || strings.HasPrefix(pkg, forbidden+"/") {
				t.Errorf("the agent links %s", pkg)
			}
		}
	}
}
