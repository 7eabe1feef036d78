// Package reload keeps the configuration of a running agent current, and gives an agent that is started with a faulty one
// the best there is.
//
// A configuration is taken whole or not at all; the last good one stays in force, and what is wrong with the newest is
// there to be shown. An agent that does not run because of a mistyped key says nothing of its machine, and neither does
// one that is started over and over, so no configuration keeps it from running.
//
// The package knows files and signals. What a configuration means, package config knows; what follows from a new one, its
// caller.
package reload
