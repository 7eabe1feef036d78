package report

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fettle-dev/fettle/internal/kubeclient"
)

// hostThere lets the Host of the node be known.
func (q *telling) hostThere() {
	q.mu.Lock()
	q.host = "uid-2"
	q.mu.Unlock()
	q.Wake()
}

func TestLifeIsToldOfTheHost(t *testing.T) {
	tell(t, func(t *testing.T, q *telling) {
		q.hostThere()
		q.Life(AgentStarted, "", "version\n1")
		synctest.Wait()
		if e := q.store.stored[0]; e.About != kubeclient.HostObject("n", "uid-2") || e.Reason != "AgentStarted" || e.Type != "Normal" || e.Note != "version 1" || e.Action == "" {
			t.Errorf("event is %+v", e)
		}
	})
}

// Without a controller there is no Host, and nothing else waits for it.
func TestLifeWaitsForTheHostAlone(t *testing.T) {
	tell(t, func(t *testing.T, q *telling) {
		for i := range 100 {
			q.Life(ConfigurationTaken, "", fmt.Sprintf("generation %d", i))
		}
		q.Life(LatchedFaultLost, "gpu", "gpu is lost")
		q.Life(LatchedFaultLost, "disk", "disk is lost")
		q.Transition(fine, broken, "fettle.dev/NetworkReady")
		synctest.Wait()
		if got := q.store.say(); got != "Warning Broken" {
			t.Errorf("told %q", got)
		}
		q.hostThere()
		synctest.Wait()
		if got, want := q.store.say(), "Warning Broken, Normal ConfigurationTaken, Warning LatchedFaultLost, Warning LatchedFaultLost"; got != want {
			t.Errorf("told %q, want %q", got, want)
		}
		if last := q.store.stored[1]; last.Note != "generation 99" {
			t.Errorf("of what waits on a topic the newest counts: %+v", last)
		}
		if counts := q.Counts(); counts.Dropped != 0 {
			t.Errorf("%+v", counts)
		}
	})
}

// The page is written by hand around the table, which it must hold as it is.
func TestThePageOfEventsHasTheTable(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/events.md")
	if err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	if err := DescribeLifeEvents(&table); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), table.String()) {
		t.Errorf("docs/reference/events.md lacks\n%s", table.String())
	}
}
