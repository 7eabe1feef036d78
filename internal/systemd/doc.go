// Package systemd talks to the machine's systemd over the system bus.
//
// It keeps one connection, finds out within a deadline whether systemd answers, tells the states of units and when they
// change, and runs a command of the machine as a transient unit, which needs no access to the machine's processes and
// outlives whoever started it.
//
// The package knows nothing of why a command is run, nor of which state of a unit is good.
package systemd
