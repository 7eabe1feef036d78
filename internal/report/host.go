package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/health"
)

// Bounds of a Host's status. The CRD has the counts too; the messages are bounded together, in bytes, so that a Host
// stays below 16 KiB however much is wrong with a machine.
const (
	maxHostChecks         = 64
	maxHostConditionTypes = 64
	maxHostMessages       = 4096
)

// Runtime says whether the agent reaches what it works with.
type Runtime struct {
	// Reachable is false when Detail says why not.
	Reachable bool
	// Detail is a sentence without changing numbers.
	Detail string
}

// HostStatus is what the Host is to say. Times of what did not change are kept from the status that is there.
func HostStatus(there fettlev1alpha1.HostStatus, agent fettlev1alpha1.HostAgent, runtime Runtime, r health.Report, now time.Time) fettlev1alpha1.HostStatus {
	types := conditionTypes(r.Conditions)
	if len(types) > maxHostConditionTypes {
		types = types[:maxHostConditionTypes]
	}
	return fettlev1alpha1.HostStatus{
		Conditions:     []metav1.Condition{hostReady(there.Conditions, runtime, now)},
		Agent:          &agent,
		Health:         hostHealth(said(there, agent.ID), r, now),
		ConditionTypes: types,
	}
}

func hostReady(there []metav1.Condition, runtime Runtime, now time.Time) metav1.Condition {
	c := metav1.Condition{
		Type: fettlev1alpha1.HostReady, Status: metav1.ConditionTrue,
		Reason:  fettlev1alpha1.ReasonHeartbeatReceived,
		Message: health.Normalise(runtime.Detail), LastTransitionTime: seconds(now),
	}
	if !runtime.Reachable {
		c.Status, c.Reason = metav1.ConditionFalse, fettlev1alpha1.ReasonRuntimeUnreachable
	}
	for _, old := range there {
		if old.Type == c.Type && old.Status == c.Status && !old.LastTransitionTime.IsZero() {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	return c
}

// healthWords are the words of Host.status.health.status. A machine on which nothing applies has not been looked at.
var healthWords = map[health.Verdict]string{
	health.OK:            "Healthy",
	health.Degraded:      "Degraded",
	health.Fatal:         "Unhealthy",
	health.Unknown:       "Unknown",
	health.NotApplicable: "Unknown",
}

// said is what an earlier process said of the machine's health. What this one said, it knows better than the Host.
func said(there fettlev1alpha1.HostStatus, id string) *fettlev1alpha1.HostHealth {
	if there.Agent == nil || there.Agent.ID == id {
		return nil
	}
	return there.Health
}

func hostHealth(earlier *fettlev1alpha1.HostHealth, r health.Report, now time.Time) *fettlev1alpha1.HostHealth {
	h := &fettlev1alpha1.HostHealth{
		Status: healthWords[r.Summary.Verdict],
		Reason: r.Summary.Reason,
		Since:  seconds(orNow(r.Summary.Since, now)),
		Counts: fettlev1alpha1.CheckCounts{
			OK: int32(r.Counts.OK), Degraded: int32(r.Counts.Degraded), Fatal: int32(r.Counts.Fatal),
			Unknown: int32(r.Counts.Unknown), NotApplicable: int32(r.Counts.NotApplicable),
		},
	}
	if earlier != nil && earlier.Status == h.Status && earlier.Reason == h.Reason && !earlier.Since.IsZero() {
		h.Since = earlier.Since
	}
	failing := r.Failing()
	if len(failing) > maxHostChecks {
		failing = failing[:maxHostChecks]
	}
	for _, s := range failing {
		h.Checks = append(h.Checks, fettlev1alpha1.HostCheck{
			Check: s.Name, Status: string(s.Verdict), Reason: s.Reason,
			Message: shorten(health.Normalise(s.Message), maxHostMessages/len(failing)),
			Since:   seconds(orNow(s.Since, h.Since.Time)),
		})
	}
	return h
}

// shorten cuts between runes to at most limit bytes, with an ellipsis; limit is above three.
func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	const ellipsis = "…"
	cut := limit - len(ellipsis)
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + ellipsis
}

func orNow(t, now time.Time) time.Time {
	if t.IsZero() {
		return now
	}
	return t
}

func seconds(t time.Time) metav1.Time { return metav1.NewTime(t.UTC().Truncate(time.Second)) }

// hostBody is the body that applies a status to a Host. It carries no UID: the API server does not look at the metadata
// of an apply to the status of a custom resource. A Host that was created anew since it was last seen gets the status of
// this machine a moment before the new one is looked at.
func hostBody(name string, status fettlev1alpha1.HostStatus) ([]byte, error) {
	body, err := json.Marshal(applyBody[fettlev1alpha1.HostStatus]{
		APIVersion: fettlev1alpha1.GroupVersion.String(), Kind: "Host",
		Metadata: applyMetadata{Name: name},
		Status:   status,
	})
	if err != nil {
		return nil, fmt.Errorf("encode status of host %s: %w", name, err)
	}
	return body, nil
}

// sameStatus compares as the API server stores: times to the second, absent and empty alike.
func sameStatus(a, b fettlev1alpha1.HostStatus) bool {
	left, errLeft := json.Marshal(a)
	right, errRight := json.Marshal(b)
	return errLeft == nil && errRight == nil && bytes.Equal(left, right)
}
