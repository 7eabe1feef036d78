// Package watch follows the leases of all agents and makes known whether each is alive.
//
// One goroutine owns what is known of them; leases and Hosts reach it as sightings from their informers, and it looks at all
// agents once a second. Nothing but a change of a verdict leaves it, so that thousands of leases renewed every ten seconds cost
// the controller's queue nothing.
//
// An agent past its grace period is Overdue. It becomes Silent only when its lease, read live past the informer, shows no
// progress either, and while the verdict on the fleet allows it (internal/fleet). The controller renews a lease of its own among
// those of the agents, the canary: when that does not come back through the watch, the controller is Blind and judges nobody.
// The canary also carries what the next leader has to know.
package watch
