package metrics

import (
	"fmt"
	"strings"
)

// equivalents map the metrics of the node readiness controller, from whose dashboards people come, to ours.
var equivalents = []struct{ theirs, ours, note string }{
	{"node_readiness_rules_total", "count(fettle_rule_info)", "theirs is a gauge in spite of its name"},
	{"node_readiness_rules", "sum by (enforcement_mode, dry_run) (fettle_rule_info)", ""},
	{"node_readiness_taint_operations_total", "fettle_taint_operations_total", "one more operation: adopt"},
	{"node_readiness_evaluation_duration_seconds", "controller_runtime_reconcile_time_seconds{controller=\"nodes\"}", "a node is looked at once for all rules, so it has no rule"},
	{"node_readiness_failures_total", "fettle_rule_write_failures_total", "reasons are the API server's; a failure counts once; a rule that cannot be understood is in fettle_rule_condition_status"},
	{"node_readiness_bootstrap_completed_total", "fettle_bootstrap_completed_total", ""},
	{"node_readiness_bootstrap_duration_seconds", "fettle_bootstrap_duration_seconds", "ends with the write, not with the newest transition of a condition"},
	{"node_readiness_reconciliation_latency_seconds", "fettle_node_reaction_seconds", "from the receipt of the event, not from the time of a transition, which has whole seconds of another machine's clock; one write serves all rules, so it has no rule; operations are add and remove"},
	{"node_readiness_enforcement_latency_seconds", "fettle_node_reaction_seconds", "the same"},
	{"node_readiness_nodes_by_state", "fettle_rule_nodes", "ready is ready; not_ready and bootstrapping are held; always there"},
	{"node_readiness_rule_nodes", "fettle_rule_nodes", "held is held, released is ready; counted when something changed, not at each scrape"},
	{"node_readiness_blocked_nodes", "fettle_rule_nodes{state=\"held\"}", "by rule; for which condition a node is held says nodeEvaluations in the rule's status"},
	{"node_readiness_condition_failures_total", "fettle_rule_nodes{state=\"held\"}", "theirs counts evaluations; nodeEvaluations in the rule's status say which conditions"},
	{"node_readiness_rule_last_reconciliation_timestamp_seconds", "fettle_rule_current", "rules are not reconciled by time; 0 says that a rule was not dealt with"},
	{"node_readiness_build_info", "fettle_controller_info", ""},
}

// page makes the page of reference.
func page() string {
	var out strings.Builder
	out.WriteString(`# Metrics of the controller

Made from the tables in the code by ` + "`go test ./internal/controller/metrics -update`" + `. Names, types and labels are API: they are not
renamed. ` + "`--metrics-bind-address`" + ` serves them, together with those of controller-runtime and the Go runtime; the depth and the
waiting time of the queue of nodes are ` + "`workqueue_depth{name=\"nodes\"}` and `workqueue_queue_duration_seconds{name=\"nodes\"}`" + `.

No label carries a node. The series of a rule end when the rule is deleted. A scrape costs what there are rules, not nodes. What
is a state of the cluster is told by the replica that leads alone, so sums over replicas are right.

| Metric | Type | Labels | Says |
|---|---|---|---|
`)
	for _, m := range table {
		labels := "-"
		if len(m.labels) > 0 {
			labels = "`" + strings.Join(m.labels, "`, `") + "`"
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", m.name, m.kind, labels, m.says)
	}
	out.WriteString(`
## For those who come from the node readiness controller

| There | Here | What differs |
|---|---|---|
`)
	for _, e := range equivalents {
		fmt.Fprintf(&out, "| `%s` | `%s` | %s |\n", e.theirs, e.ours, e.note)
	}
	return out.String()
}
