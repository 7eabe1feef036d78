// Package agent wires the node agent: configuration to checks, checks to the scheduler and the health engine, what that
// decides to the API server, and the whole to the service manager. It decides nothing itself.
package agent
