package report

import (
	"context"
	"time"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/kubeclient"
)

func (r *Reporter) hostStatus(now time.Time) fettlev1alpha1.HostStatus {
	status := HostStatus(r.hostThere, r.o.Agent, *r.runtime, r.report, now)
	// Also the types that are kept: they are what the controller sets to Unknown when we fall silent.
	status.ConditionTypes = append([]string(nil), r.applied[:min(len(r.applied), maxHostConditionTypes)]...)
	return status
}

// hostRight reports whether the Host says what it should, and how long messages that changed alone may wait.
func (r *Reporter) hostRight(now time.Time) (right bool, wait time.Duration) {
	if !r.hostApplied {
		return false, 0
	}
	wanted := r.hostStatus(now)
	switch {
	case sameStatus(r.hostThere, wanted):
		return true, 0
	case !sameStatus(withoutMessages(r.hostThere), withoutMessages(wanted)):
		return false, 0
	}
	wait = max(messageEvery-now.Sub(r.hostMessages), 0)
	return wait > 0, wait
}

func (r *Reporter) applyHost(ctx context.Context, now time.Time) error {
	status := r.hostStatus(now)
	body, err := hostBody(r.o.Node, status)
	if err != nil {
		return err
	}
	version, err := r.api.ApplyHostStatus(ctx, r.o.Node, body)
	if kubeclient.IsAnotherObject(err) {
		r.host = nil // its watch will show the one that is there now
		return nil
	}
	if err != nil {
		return err
	}
	r.hostThere, r.hostApplied, r.hostMessages, r.hostVersion = status, true, now, version
	return nil
}

// withoutMessages is a copy of a status that says the same in fewer words.
func withoutMessages(s fettlev1alpha1.HostStatus) fettlev1alpha1.HostStatus {
	s = *s.DeepCopy()
	for i := range s.Conditions {
		s.Conditions[i].Message = ""
	}
	if s.Health != nil {
		for i := range s.Health.Checks {
			s.Health.Checks[i].Message = ""
		}
	}
	return s
}
