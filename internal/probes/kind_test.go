package probes_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/reasons"
)

var table = reasons.Table{
	{Name: "Broken", Severity: reasons.Fatal}, {Name: "Low", Severity: reasons.Degraded}, {Name: "Unreadable", Severity: reasons.Unknown},
}

func TestOnlyDeclaredReasonsPass(t *testing.T) {
	for _, tc := range []struct {
		name string
		in   health.Result
		want string // reason
	}{
		{name: "ok", in: probes.OK("well"), want: "OK"},
		{name: "not applicable", in: probes.NotApplicable("nothing there"), want: "NotApplicable"},
		{name: "a declared reason with its verdict", in: probes.Because(table, "Broken", "x"), want: "Broken"},
		{name: "a degraded one", in: probes.Because(table, "Low", "x"), want: "Low"},
		{name: "an unknown one", in: probes.Because(table, "Unreadable", "x"), want: "Unreadable"},
		{name: "a common reason", in: probes.Because(probes.Common, health.ReasonTimeout, "x"), want: "CheckTimedOut"},
		{name: "an undeclared reason", in: probes.Because(table, "Brocken", "x"), want: probes.ReasonUndeclared},
		{name: "a declared reason with another verdict", in: health.Result{Verdict: health.Degraded, Reason: "Broken"}, want: probes.ReasonUndeclared},
		{name: "ok for a reason", in: health.Result{Verdict: health.OK, Reason: "Broken"}, want: probes.ReasonUndeclared},
		{name: "fatal without a reason", in: health.Result{Verdict: health.Fatal}, want: probes.ReasonUndeclared},
		{name: "nothing at all", in: health.Result{}, want: probes.ReasonUndeclared},
	} {
		t.Run(tc.name, func(t *testing.T) {
			kind := probes.Define(probes.Kind{Name: "k", Reasons: table, Interval: time.Second}, func() struct{} { return struct{}{} },
				func(probes.Env, struct{}) probes.Probe {
					return probes.Func(func(context.Context) health.Result { return tc.in })
				})
			got := kind.Build(probes.Env{}, kind.NewOptions()).Run(t.Context())
			if got.Reason != tc.want {
				t.Errorf("%+v, want the reason %s", got, tc.want)
			}
			if tc.want == probes.ReasonUndeclared && (got.Verdict != health.Unknown || !strings.Contains(got.Message, "k gave the")) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// watched is a probe that asks for one look.
type watched struct{}

func (watched) Run(context.Context) health.Result { return probes.OK("well") }

func (watched) Watch(_ context.Context, look func()) { look() }

func TestOnlyAProbeThatWatchesIsBuiltAsAWatcher(t *testing.T) {
	build := func(p probes.Probe) probes.Probe {
		kind := probes.Define(probes.Kind{Name: "k", Interval: time.Second}, func() struct{} { return struct{}{} }, func(probes.Env, struct{}) probes.Probe { return p })
		return kind.Build(probes.Env{}, kind.NewOptions())
	}
	asked := 0
	w, ok := build(watched{}).(probes.Watcher)
	if !ok {
		t.Fatal("a probe that watches was built as one that does not")
	}
	w.Watch(t.Context(), func() { asked++ })
	if asked != 1 || w.Run(t.Context()).Verdict != health.OK {
		t.Errorf("asked %d times for a look", asked)
	}
	if _, ok := build(probes.Func(watched{}.Run)).(probes.Watcher); ok {
		t.Error("a probe that does not watch was built as one that does")
	}
}

func TestBytes(t *testing.T) {
	for text, want := range map[string]probes.Bytes{"0": 0, "1": 1, "4096": 4096, "1Ki": 1024, "512Mi": 512 << 20, "20Gi": 20 << 30, "1Ti": 1 << 40} {
		var got probes.Bytes
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
		var again probes.Bytes
		if err := again.UnmarshalText([]byte(got.String())); err != nil || again != want {
			t.Errorf("%s is written as %s", text, got)
		}
	}
	for _, text := range []string{"", "-1", "1.5Gi", "1G", "Gi", "1 Gi", "99999999999Ti", "0x10", "1KiKi"} {
		var got probes.Bytes
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is %d", text, got)
		}
	}
}
