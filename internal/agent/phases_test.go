package agent

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/heartbeat"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/probes/catalogue"
)

// TestAgentsDoNotLookInStep starts agents at the same moment. It is the node's name that sets them apart, and once the API
// server told it, the UID.
func TestAgentsDoNotLookInStep(t *testing.T) {
	host, err := hostfs.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	c, err := config.Parse("test.yaml", []byte("checks:\n- {name: process-ids, interval: 1h}\n"), catalogue.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	// Others wait for the network, which time in a bubble does not pass by.
	c.Checks = slices.DeleteFunc(c.Checks, func(c config.Check) bool { return c.Settings.Name != "process-ids" })
	// looks are when the agent of a node looks after the first look of all, within three hours. It soon learns the UID, if any.
	looks := func(name string, uid types.UID) (at []time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			o := Options{Config: c, NodeName: name, Getenv: func(string) string { return "" }, Log: slog.New(slog.DiscardHandler)}
			p := assemble(o, host, "", fettlev1alpha1.HostAgent{BootID: "boot"})
			defer p.close()
			p.diagnosis.scheduler.Looked = func(string, time.Duration, health.Result) { at = append(at, time.Since(start)) }
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { _ = p.diagnosis.scheduler.Run(ctx) })
			time.Sleep(time.Minute)
			if uid != "" {
				p.cluster.heartMoved(heartbeat.Status{State: heartbeat.Holding, NodeUID: uid})
			}
			time.Sleep(3 * time.Hour)
			cancel()
			running.Wait()
		})
		return at[1:]
	}
	one, two := looks("one", ""), looks("two", "")
	first, second := looks("one", "uid-1"), looks("one", "uid-2")
	for i, pair := range [][2][]time.Duration{{one, two}, {one, first}, {first, second}} {
		if slices.Equal(pair[0], pair[1]) {
			t.Errorf("pair %d of agents that differ looks at %v", i, pair[0])
		}
	}
	if again := looks("one", "uid-1"); !slices.Equal(again, first) {
		t.Errorf("an agent looks at %v, and after another start at %v", first, again)
	}
	if renamed := looks("two", "uid-1"); renamed[len(renamed)-1] != first[len(first)-1] {
		t.Errorf("of one UID under two names, the last looks come at %v and %v", renamed, first)
	}
}
