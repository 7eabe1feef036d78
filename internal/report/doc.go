// Package report says on the API server what the health engine decided: as conditions on the Node, and as the status of
// the Host.
//
// It writes on change only, both in one server-side apply each, and nothing before every check was decided, so that what
// was known of the machine before a restart stays until there is something better. It writes only while the heartbeat
// holds the node's Lease; two agents never contradict each other. The Host is the last to be written: once it says
// Ready=True, the Node is right.
//
// What to do next is a pure function of what is wanted and what is known to be stored (plan.go), what to write is built
// by pure functions (node.go, host.go); Reporter carries it out. The package knows nothing of how checks come to their
// verdicts.
package report
