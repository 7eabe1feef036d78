// Package health decides from the results of checks what is said of a machine.
//
// It is pure: results and times come in as values, and the state that must outlive a call is returned. It knows nothing
// of how checks run, of Kubernetes, or of clocks.
package health
