// Package heartbeat keeps the Lease that says the agent of a node is alive.
//
// The Lease is renewed by a loop and over a connection of its own, so that neither a check that hangs nor a flood of
// other calls can make a living agent look dead. It is renewed only while the scheduler of checks makes progress, so
// that an agent that hangs does look dead.
//
// One agent holds a node's Lease. A restarted agent takes it over at once from its own predecessor, whose identity it
// finds in the state folder; from anyone else only after that holder missed three beats: its lease duration less one
// interval, as seen from here. A foreign holder that lives is a conflict of identities: it is shown, and nothing is taken.
//
// A Lease that cannot be renewed though the API server answers is told from an API server that is away: the agent is
// impaired, and can say so elsewhere.
//
// The package knows nothing of checks or conditions.
package heartbeat
