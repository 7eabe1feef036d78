package interrupts_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fettle-dev/fettle/internal/interrupts"
)

func TestNext(t *testing.T) {
	want := interrupts.Request{ID: "op", Limit: time.Hour}
	host := interrupts.Host{BootID: "one", Uptime: 10 * time.Minute}
	intended := interrupts.Reboot{ID: "op", BootID: "one", Phase: interrupts.Intended, Began: 9 * time.Minute}
	asked := intended
	asked.Phase, asked.Asks, asked.LastAsk = interrupts.Asked, 1, 10*time.Minute-time.Second
	done := asked
	done.Phase = interrupts.Done
	at := func(change func(*interrupts.Host)) interrupts.Host { h := host; change(&h); return h }
	for _, tc := range []struct {
		name   string
		record interrupts.Reboot
		host   interrupts.Host
		phase  interrupts.Phase
		cause  interrupts.Cause
		act    interrupts.Act
	}{
		{name: "a new request", host: host, phase: interrupts.Intended, act: interrupts.Intend},
		{name: "a record of another request", record: interrupts.Reboot{ID: "old", BootID: "one", Phase: interrupts.Intended}, host: host, phase: interrupts.Intended, act: interrupts.Intend},
		{name: "it is intended", record: intended, host: host, phase: interrupts.Asked, act: interrupts.Ask},
		{name: "it was asked for just now", record: asked, host: host, phase: interrupts.Asked, act: interrupts.Await},
		{name: "it was asked for, and nothing happens", record: asked, host: at(func(h *interrupts.Host) { h.Uptime += interrupts.AskAgain }), phase: interrupts.Asked, act: interrupts.Ask},
		{name: "the host shuts down", record: asked, host: at(func(h *interrupts.Host) { h.ShuttingDown = true; h.Uptime += time.Hour }), phase: interrupts.Asked, act: interrupts.Await},
		{name: "somebody else shuts it down", record: intended, host: at(func(h *interrupts.Host) { h.ShuttingDown = true }), phase: interrupts.Intended, act: interrupts.Await},
		{name: "it has rebooted", record: asked, host: interrupts.Host{BootID: "two"}, phase: interrupts.Done, cause: interrupts.Ours, act: interrupts.Report},
		{name: "it has rebooted before it was asked to", record: intended, host: interrupts.Host{BootID: "two"}, phase: interrupts.Done, cause: interrupts.External, act: interrupts.Report},
		{name: "it has rebooted, and again since", record: done, host: interrupts.Host{BootID: "three"}, phase: interrupts.Done, act: interrupts.Report},
		{name: "it does not reboot in time", record: asked, host: at(func(h *interrupts.Host) { h.Uptime = 9*time.Minute + time.Hour }), phase: interrupts.Failed, act: interrupts.Report},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, act := interrupts.Next(tc.record, want, tc.host)
			if act != tc.act || got.Phase != tc.phase || got.Cause != tc.cause || got.ID != "op" {
				t.Errorf("%s %+v", act, got)
			}
		})
	}
	// Without a limit there is one all the same.
	got, act := interrupts.Next(intended, interrupts.Request{ID: "op"}, at(func(h *interrupts.Host) { h.Uptime += interrupts.DefaultLimit }))
	if act != interrupts.Report || got.Phase != interrupts.Failed {
		t.Errorf("%s %+v", act, got)
	}
}

// Wherever the process dies, whatever logind does and whoever else reboots the host: one request comes to at most one
// reboot that we asked for, and it ends.
func TestOneRequestIsOneReboot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		host := interrupts.Host{BootID: "0"}
		var stored interrupts.Reboot
		boots, ours := 0, 0
		boot := func() {
			boots++
			host = interrupts.Host{BootID: string(rune('0' + boots))}
		}
		want := interrupts.Request{ID: "op", Limit: 10 * time.Minute}
		for range 500 {
			record, act := interrupts.Next(stored, want, host)
			if rapid.IntRange(0, 9).Draw(t, "dies before it is stored") == 0 {
				continue
			}
			stored = record
			if act == interrupts.Report {
				if again, act := interrupts.Next(stored, want, interrupts.Host{BootID: "another"}); act != interrupts.Report || again.Phase != stored.Phase {
					t.Fatalf("it is over, and then %s %+v", act, again)
				}
				if ours > 1 {
					t.Fatalf("rebooted %d times", ours)
				}
				return
			}
			if act == interrupts.Ask && rapid.IntRange(0, 4).Draw(t, "dies before it asks") > 0 && rapid.IntRange(0, 2).Draw(t, "logind") > 0 {
				host.ShuttingDown = true
				ours++
			}
			host.Uptime += time.Duration(rapid.IntRange(1, 60).Draw(t, "seconds")) * time.Second
			if host.ShuttingDown && rapid.Bool().Draw(t, "down") || rapid.IntRange(0, 99).Draw(t, "power cut") == 0 {
				boot()
			}
		}
		t.Fatalf("it never ends: %+v", stored)
	})
}

func TestCommands(t *testing.T) {
	all := interrupts.Commands("service", []string{"a", "b"})
	if len(all) != 3 || all[0].Argv[1] != "daemon-reload" || all[2].Name != "service_restart_2" || all[2].Argv[2] != "b" {
		t.Errorf("%+v", all)
	}
	if all := interrupts.Commands("restartAllServices", nil); len(all) != 1 || len(all[0].Argv) != 3 {
		t.Errorf("%+v", all)
	}
	for _, kind := range []string{"reboot", "noop"} {
		if all := interrupts.Commands(kind, nil); len(all) > 0 {
			t.Errorf("%s: %+v", kind, all)
		}
	}
}
