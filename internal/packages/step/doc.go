// Package step runs one step of a package under supervision and writes down how it ended.
//
// The supervisor is a program of its own, fettle-step, which systemd runs on the host as a transient unit. So a step
// outlives the agent that asked for it, and the verdict outlives the step: it is a durable file, written last. Where there
// is neither a verdict nor a unit, the step was interrupted.
//
// What the step prints goes to standard output, thus to the journal with the fields of the unit, and with a time on every
// line to the log file of the step.
package step
