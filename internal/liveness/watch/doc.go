// Package watch follows the leases of all agents and makes known whether each is alive.
//
// One goroutine owns the timers; leases and Hosts reach it as sightings from their informers. Nothing but a change of a
// verdict leaves it, so that thousands of leases renewed every ten seconds cost the controller's queue nothing. Before an
// agent is called silent its lease is read live, past the informer.
package watch
