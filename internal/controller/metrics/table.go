package metrics

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fettle-dev/fettle/internal/fleet"
	"github.com/fettle-dev/fettle/internal/liveness"
	"github.com/fettle-dev/fettle/internal/version"
)

// What is counted as it happens.
var (
	reaction = &metric{
		name: "fettle_node_reaction_seconds", kind: histogram, labels: []string{"operation"},
		says:    "From the receipt of the event that made a node be looked at to the API server's answer to the write that followed, for writes that add or remove taints. Holds (for) and nodes looked at again by a timer are not in it.",
		buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
	}
	taintOperations = &metric{
		name: "fettle_taint_operations_total", kind: counter, labels: []string{ruleLabel, "operation"},
		says: "Taints that were added, removed or adopted on account of a rule. The rule is empty for taints of rules that are gone.",
	}
	writeFailures = &metric{
		name: "fettle_rule_write_failures_total", kind: counter, labels: []string{ruleLabel, "reason"},
		says: "Writes of nodes on account of a rule that failed for good, each before it was tried again; by the API server's reason.",
	}
	bootstraps = &metric{
		name: "fettle_bootstrap_completed_total", kind: counter, labels: []string{ruleLabel},
		says: "Nodes that completed a bootstrap-only rule.",
	}
	bootstrapDuration = &metric{
		name: "fettle_bootstrap_duration_seconds", kind: histogram, labels: []string{ruleLabel},
		says:    "From the creation of a node to its completion of a bootstrap-only rule. Nodes older than the rule are not in it.",
		buckets: []float64{1, 5, 10, 30, 60, 120, 300, 600, 1200, 3600},
	}
	apiRequests = &metric{
		name: "fettle_api_requests_total", kind: counter, labels: []string{"verb", "resource", "result"},
		says: "Requests to the API server, with how they ended: answered, conflict (409, and 422 to a patch, which is how the API server refuses a patch that relies on what has changed), throttled (429), refused (other 4xx), failed (5xx), unanswered. A watch counts when it begins.",
	}
)

// table is all there is. States of the cluster are told by the replica that leads alone, so that sums over replicas are right.
var table = []*metric{
	{name: "fettle_controller_info", kind: gauge, labels: []string{"version"}, says: "Who is speaking. Always 1.", read: func(_ view, put emit) {
		put(1, version.String())
	}},
	{name: "fettle_controller_leading", kind: gauge, says: "1 while this replica acts. What follows from rules and agents is told by that one alone.", read: func(v view, put emit) {
		put(is(v.leading))
	}},
	reaction,
	taintOperations,
	writeFailures,
	bootstraps,
	bootstrapDuration,
	{name: "fettle_rule_info", kind: gauge, labels: []string{ruleLabel, "enforcement_mode", "dry_run", "suspended"}, says: "What kind of rule it is. Always 1.", read: func(v view, put emit) {
		for _, r := range v.rules {
			put(1, r.Name, string(r.Spec.EnforcementMode), strconv.FormatBool(r.Spec.DryRun), strconv.FormatBool(r.Spec.Suspend))
		}
	}},
	{name: "fettle_rule_current", kind: gauge, labels: []string{ruleLabel}, says: "1 when the rule's status is about its newest generation.", read: func(v view, put emit) {
		for _, r := range v.rules {
			put(is(r.Status.ObservedGeneration == r.Generation), r.Name)
		}
	}},
	{name: "fettle_rule_nodes", kind: gauge, labels: []string{ruleLabel, "state"}, says: "Nodes that the rule selects, by state: ready, held, spared, and, besides, failed: nodes that could not be written to.", read: readRuleNodes},
	{name: "fettle_rule_condition_status", kind: gauge, labels: []string{ruleLabel, "type", "status"}, says: "1 for the status that the condition of the rule has, 0 for the others: True, False, Unknown.", read: readRuleConditions},
	{name: "fettle_rule_unseen_condition_types", kind: gauge, labels: []string{ruleLabel}, says: "Number of condition types that the rule requires and no node has or had.", read: func(v view, put emit) {
		for _, r := range v.rules {
			put(float64(len(r.Status.UnseenConditionTypes)), r.Name)
		}
	}},
	{name: "fettle_agents", kind: gauge, labels: []string{"state"}, says: "Node agents by what is known of their life: Starting, Alive, Overdue (silent, and nothing may follow from it), Silent, NeverReported.", read: readAgents},
	{name: "fettle_fleet_verdict", kind: gauge, labels: []string{"verdict"}, says: "1 for the verdict on the fleet that is in force, 0 for the others: Normal, Partial, Suspended, Blind.", read: func(v view, put emit) {
		for _, one := range fleet.Verdicts {
			if v.leading {
				put(is(v.fleet.Verdict == one), string(one))
			}
		}
	}},
	{name: "fettle_fleet_overridden", kind: gauge, says: "1 while a person has set the verdict in place of the computed one.", read: whileLeading(func(v view) float64 {
		return is(v.fleet.Override.Verdict != "")
	})},
	{name: "fettle_fleet_agents", kind: gauge, labels: []string{"state"}, says: "What the verdict goes by: agents expected to be heard; of them stale, which have let their lease run out, and waiting, which would be called silent if that was allowed; and those away on purpose, who are not expected.", read: func(v view, put emit) {
		if v.leading {
			put(float64(v.fleet.Agents), "expected")
			put(float64(v.fleet.Stale), "stale")
			put(float64(v.fleet.Waiting), "waiting")
			put(float64(v.fleet.Away), "away")
		}
	}},
	{name: "fettle_silences_total", kind: counter, says: "Agents that were called silent.", read: whileLeading(func(v view) float64 { return float64(v.liveness.Silences) })},
	{name: "fettle_recoveries_total", kind: counter, says: "Silent agents that were heard again.", read: whileLeading(func(v view) float64 { return float64(v.liveness.Recoveries) })},
	{name: "fettle_silence_confirmations_total", kind: counter, labels: []string{"result"}, says: "Live reads of a lease before its agent is called silent, by what came of them: confirmed, refuted (the agent lives, the watch was late), failed (nobody can say).", read: func(v view, put emit) {
		if v.leading {
			put(float64(v.liveness.Confirmed), "confirmed")
			put(float64(v.liveness.Refuted), "refuted")
			put(float64(v.liveness.Failed), "failed")
		}
	}},
	{name: "fettle_canary_age_seconds", kind: gauge, says: "How old the newest renewal of the controller's own lease is that came back through its watch of leases.", read: whileLeading(func(v view) float64 { return v.fleet.CanaryAge.Seconds() })},
	{name: "fettle_canary_renewals_total", kind: counter, labels: []string{"result"}, says: "Renewals of the controller's own lease among those of the agents, which carries what the next leader has to know: stored, failed.", read: func(v view, put emit) {
		if v.leading {
			put(float64(v.liveness.CanaryRenewals), "stored")
			put(float64(v.liveness.CanaryFailures), "failed")
		}
	}},
	apiRequests,
}

// whileLeading reads one value on the replica that leads.
func whileLeading(read func(view) float64) func(view, emit) {
	return func(v view, put emit) {
		if v.leading {
			put(read(v))
		}
	}
}

func readRuleNodes(v view, put emit) {
	for _, r := range v.rules {
		counts := r.Status.Nodes
		if counts == nil {
			continue
		}
		put(float64(counts.Ready), r.Name, "ready")
		put(float64(counts.Held), r.Name, "held")
		put(float64(counts.Spared), r.Name, "spared")
		put(float64(counts.Failed), r.Name, "failed")
	}
}

func readRuleConditions(v view, put emit) {
	for _, r := range v.rules {
		for _, c := range r.Status.Conditions {
			for _, status := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown} {
				put(is(c.Status == status), r.Name, c.Type, string(status))
			}
		}
	}
}

func readAgents(v view, put emit) {
	if v.agents == nil {
		return
	}
	for _, state := range liveness.States {
		put(float64(v.agents[state]), string(state))
	}
}
