package endpoints

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/fettle-dev/fettle/internal/health"
)

// The file is what readers of the JSON form rely on: lines may be added to it, and none removed or changed.
func TestTheFormOfStatusIsStable(t *testing.T) {
	agent, board, source := well()
	s := New(Options{Agent: agent, Board: board, Source: source})
	now := s.Status()
	now.SaidAt = noon
	got, err := encode(now)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/status.json")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	var back Status
	if err := json.Unmarshal(want, &back); err != nil || !sameSubstance(back, now) {
		t.Errorf("read back it is %+v, %v", back, err)
	}
}

func TestUnready(t *testing.T) {
	for _, tc := range []struct {
		name string
		make func(*told, *Board)
		want []string
	}{
		{name: "a broken machine whose agent works", make: func(*told, *Board) {}},
		{name: "alone", make: func(s *told, _ *Board) { s.cluster = nil }},
		{
			name: "stalled", make: func(s *told, _ *Board) { s.stalled = "checks stand still for 12s" },
			want: []string{"checks stand still for 12s"},
		},
		{
			name: "not looked at yet",
			make: func(_ *told, b *Board) {
				b.Say(health.Report{Checks: []health.CheckState{
					{Name: "cni-config", Result: health.Result{Verdict: health.Unknown, Reason: health.ReasonPending}},
					{Name: "root-filesystem", Result: health.Result{Verdict: health.OK, Reason: health.ReasonOK}},
				}})
			},
			want: []string{"checks are not decided yet: cni-config"},
		},
		{
			name: "no API server", make: func(s *told, _ *Board) { s.cluster = &Cluster{} },
			want: []string{"the cluster is not joined: no API server was found yet"},
		},
		{
			name: "everything else at once",
			make: func(s *told, b *Board) {
				b.Say(health.Report{})
				s.cluster = &Cluster{Joined: true, Lease: Lease{State: "IdentityConflict", Detail: "gpu-17_b holds it"}}
			},
			want: []string{"checks are not decided yet", "the lease is not held: IdentityConflict: gpu-17_b holds it", "the latest is not published: not yet"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			agent, board, source := well()
			tc.make(source, board)
			s := New(Options{Agent: agent, Board: board, Source: source})
			if got := Unready(s.Status()); !slices.Equal(got, tc.want) {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}

// Where nothing was looked at, nothing is known.
func TestAMachineWithoutChecksIsUnknown(t *testing.T) {
	b := NewBoard()
	b.Say(health.Report{Decided: true, Summary: health.Summary{Verdict: health.NotApplicable}})
	if got := b.Health().Status; got != "Unknown" {
		t.Errorf("it is %s", got)
	}
}
