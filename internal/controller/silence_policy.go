package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/events"
	"github.com/fettle-dev/fettle/internal/fleet"
	"github.com/fettle-dev/fettle/internal/nodewriter"
)

const (
	// policyPause is the time between two looks at the policy and the verdict.
	policyPause = time.Second
	// countsPause is the least time between two writes of the status for the sake of its numbers alone.
	countsPause = 15 * time.Second
)

// fleetPolicy carries what people decided about silence to whoever judges the fleet, and the verdict back to people: by events
// always, and in the policy's status where there is one.
type fleetPolicy struct {
	cache    client.Reader
	client   client.Client
	judge    judge
	events   *events.Queue
	defaults fleet.Limits
	log      logr.Logger

	// told is what events have told.
	told fleet.Report
	// written is when the status was written last.
	written time.Time
}

// judge is who judges the fleet.
type judge interface {
	Fleet() fleet.Report
	SetPolicy(fleet.Policy)
}

// NeedLeaderElection : only the leader judges.
func (p *fleetPolicy) NeedLeaderElection() bool { return true }

// Start looks until the context ends.
func (p *fleetPolicy) Start(ctx context.Context) error {
	ticker := time.NewTicker(policyPause)
	defer ticker.Stop()
	for {
		policy, err := p.read(ctx)
		if err == nil {
			err = p.look(ctx, policy, time.Now())
		}
		if err != nil && ctx.Err() == nil {
			p.log.Error(err, "will be tried again")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// read gets the policy; nil when there is none.
func (p *fleetPolicy) read(ctx context.Context) (*fettlev1alpha1.FleetPolicy, error) {
	policy := &fettlev1alpha1.FleetPolicy{}
	err := p.cache.Get(ctx, client.ObjectKey{Name: fettlev1alpha1.FleetPolicyName}, policy)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return policy, err
}

func (p *fleetPolicy) look(ctx context.Context, policy *fettlev1alpha1.FleetPolicy, now time.Time) error {
	wanted := policyOf(policy, p.defaults)
	p.judge.SetPolicy(wanted)
	report := p.judge.Fleet()
	if report.Since.IsZero() || report.Policy != wanted { // nobody has looked yet
		return nil
	}
	if p.told.Since.IsZero() {
		p.told = toldBy(policy, report)
	}
	p.tell(policy, report)
	if policy == nil {
		return nil
	}
	status := statusOf(policy, report, now)
	if equality.Semantic.DeepEqual(status, policy.Status) {
		return nil
	}
	if onlyNumbers(status, policy.Status) && now.Sub(p.written) < countsPause {
		return nil
	}
	updated := policy.DeepCopy()
	updated.Status = status
	if err := p.client.Status().Patch(ctx, updated, client.MergeFrom(policy), nodewriter.FieldOwner); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("write the status of FleetPolicy %s: %w", policy.Name, err))
	}
	p.written = now
	return nil
}

// policyOf fills with the defaults what people left open.
func policyOf(policy *fettlev1alpha1.FleetPolicy, defaults fleet.Limits) fleet.Policy {
	out := fleet.Policy{Limits: defaults}
	if policy == nil || policy.Spec.Silence == nil {
		return out
	}
	silence := policy.Spec.Silence
	for _, set := range []struct {
		from *metav1.Duration
		to   *time.Duration
	}{{silence.Window, &out.Limits.Window}, {silence.Cooldown, &out.Limits.Cooldown}} {
		if set.from != nil {
			*set.to = set.from.Duration
		}
	}
	for _, set := range []struct {
		from *int32
		to   *int
	}{
		{silence.MaxPerWindow, &out.Limits.MaxSilences},
		{silence.MaxPercentPerWindow, &out.Limits.MaxSilencesPercent},
		{silence.SuspendAbovePercent, &out.Limits.SuspendAbovePercent},
	} {
		if set.from != nil {
			*set.to = int(*set.from)
		}
	}
	if o := silence.Override; o != nil {
		out.Override = fleet.Override{Verdict: fleet.Verdict(o.Verdict), Until: o.Until.Time, Reason: o.Reason}
	}
	return out
}

// statusOf says what is known of the fleet. What did not change keeps its times.
func statusOf(policy *fettlev1alpha1.FleetPolicy, r fleet.Report, now time.Time) fettlev1alpha1.FleetPolicyStatus {
	status := *policy.Status.DeepCopy()
	status.ObservedGeneration = policy.Generation
	if status.Verdict != string(r.Verdict) || status.Since == nil {
		status.Since = &metav1.Time{Time: r.Since.Truncate(time.Second)}
	}
	status.Verdict, status.Computed = string(r.Verdict), string(r.Computed)
	status.Reason, status.Message = r.Reason, r.Message
	status.Agents = &fettlev1alpha1.FleetAgents{
		Expected: int32(r.Agents), Stale: int32(r.Stale), Waiting: int32(r.Waiting), New: int32(r.New),
		Silent: int32(r.Silent), Away: int32(r.Away), NeverReported: int32(r.NeverReported),
	}
	set := func(kind string, is bool, reason, message string) {
		c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message, ObservedGeneration: policy.Generation, LastTransitionTime: metav1.Time{Time: now.Truncate(time.Second)}}
		if is {
			c.Status = metav1.ConditionTrue
		}
		apimeta.SetStatusCondition(&status.Conditions, c)
	}
	overridden, reason, message := overrideOf(policy, r)
	set(fettlev1alpha1.FleetOverridden, overridden, reason, message)
	if !overridden {
		reason, message = r.Reason, fleet.Reasons.Find(r.Reason).Says
	}
	set(fettlev1alpha1.FleetActsOnSilence, r.Verdict.Acts(), reason, message)
	return status
}

func overrideOf(policy *fettlev1alpha1.FleetPolicy, r fleet.Report) (in bool, reason, message string) {
	switch {
	case r.Override.Verdict != "":
		return true, fleet.ReasonOverridden, describeOverride(r.Override)
	case policy.Spec.Silence != nil && policy.Spec.Silence.Override != nil:
		return false, fleet.ReasonOverrideExpired, fleet.Reasons.Find(fleet.ReasonOverrideExpired).Says
	}
	return false, fleet.ReasonNotOverridden, fleet.Reasons.Find(fleet.ReasonNotOverridden).Says
}

func describeOverride(o fleet.Override) string {
	return fmt.Sprintf("%s until %s: %s", o.Verdict, o.Until.UTC().Format(time.RFC3339), o.Reason)
}

// onlyNumbers reports whether two statuses differ in nothing that is worth a write at once.
func onlyNumbers(a, b fettlev1alpha1.FleetPolicyStatus) bool {
	a.Message, b.Message = "", ""
	a.Agents, b.Agents = nil, nil
	return equality.Semantic.DeepEqual(a, b)
}

// toldBy gives what a leader before this one has told, as far as the policy's status says; else, that all was well.
func toldBy(policy *fettlev1alpha1.FleetPolicy, r fleet.Report) fleet.Report {
	told := fleet.Report{Verdict: fleet.Normal, Since: r.Since}
	if policy == nil || policy.Status.Verdict == "" {
		return told
	}
	told.Verdict = fleet.Verdict(policy.Status.Verdict)
	overridden := apimeta.FindStatusCondition(policy.Status.Conditions, fettlev1alpha1.FleetOverridden)
	if overridden != nil && overridden.Status == metav1.ConditionTrue && overridden.ObservedGeneration == policy.Generation {
		told.Override = policyOf(policy, fleet.Limits{}).Override
	}
	return told
}

// tell makes events of what changed.
func (p *fleetPolicy) tell(policy *fettlev1alpha1.FleetPolicy, r fleet.Report) {
	before := p.told
	p.told = r
	object := policyReference(policy)
	if r.Override != before.Override {
		if r.Override.Verdict != "" {
			p.log.Info("the verdict on the fleet is overridden", "override", describeOverride(r.Override), "computed", r.Computed)
			p.events.Add(noteOverridden.about(object, fmt.Sprintf("%s; without it the verdict would be %s", describeOverride(r.Override), r.Computed)))
		} else {
			p.log.Info("the override of the verdict on the fleet has ended", "verdict", r.Verdict)
			p.events.Add(noteOverEnded.about(object, fmt.Sprintf("the override has ended, the verdict is %s: %s", r.Verdict, r.Message)))
		}
	}
	if r.Verdict != before.Verdict {
		why := r.Message
		if r.Override.Verdict != "" {
			why = "by override"
		}
		e := noteVerdict.about(object, fmt.Sprintf("%s, before %s: %s", r.Verdict, before.Verdict, why))
		if r.Verdict == fleet.Normal {
			e.Type = corev1.EventTypeNormal
		}
		p.events.Add(e)
	}
}

// policyReference is what events about the fleet are about, whether the policy exists or not.
func policyReference(policy *fettlev1alpha1.FleetPolicy) corev1.ObjectReference {
	ref := corev1.ObjectReference{APIVersion: fettlev1alpha1.GroupVersion.String(), Kind: "FleetPolicy", Name: fettlev1alpha1.FleetPolicyName}
	if policy != nil {
		ref.UID = policy.UID
	}
	return ref
}
