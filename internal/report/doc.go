// Package report says on the API server what the health engine decided: as conditions on the Node, as the status of the
// Host, and, of what changed, as events.
//
// It writes on change only, both in one server-side apply each. Of a type that is not decided yet whatever stands on the
// Node stays, so that what was known of the machine before a restart stays until there is something better; it is copied
// under the resourceVersion at which it was read, so that nobody's news is written over. The Host is the last to be
// written: once it says Ready=True, the Node is right. A message that changes alone is written at most once a minute.
//
// It writes only while the heartbeat holds the node's Lease; two agents never contradict each other. The one exception is
// a Lease that the API server does not let us renew: that is said once, and everything else is left as it stands.
//
// A type that is not configured any more goes. An apply that leaves it out would leave behind what another manager owns
// of it, as the controller does of what it set to Unknown, so such conditions are removed by a JSON patch first, while
// metadata.managedFields still shows that they are ours.
//
// What to do next is a pure function of what is wanted and what is known to be stored (plan.go), what to write is built
// by pure functions (node.go, host.go); Reporter carries it out. Events wait behind all of this (events.go). The package
// knows nothing of how checks come to their verdicts.
package report
