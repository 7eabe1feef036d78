// Package systemd talks to the machine's systemd over the system bus.
//
// It keeps one connection, finds out within a deadline whether systemd answers, and runs a command of the machine as a
// transient unit, which needs no access to the machine's processes and outlives whoever started it.
//
// The package knows nothing of why a command is run.
package systemd
