// Package health decides from the results of checks what is said of a machine.
//
// Looks in a row come to a verdict (Step). What is said of a check then depends on its history, on the time, on the boot
// and on the checks it depends on (Engine); and what is said of the machine on all that is said of checks.
//
// It is pure: results and times come in as values, and the state that must outlive a call is returned. It knows nothing
// of how checks run, of Kubernetes, or of clocks.
package health
