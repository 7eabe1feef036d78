// Package metrics is what the controller tells Prometheus.
//
// Every metric stands in one table, from which the page of reference is made. No label carries a node's name or a
// message: the series that there are follow from the rules, and those of a rule go with it. What is a state of the
// cluster is read at each scrape from what the controller has at hand, at a cost that follows from the rules alone.
package metrics
