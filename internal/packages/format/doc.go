// Package format knows the shape of a package and of what packages leave on a host: config.json of schema v1, the folders
// of a package, flags, history, log files and the environment of a step. Names and bytes are those of NodeWright's agent,
// so that packages run unmodified and a host that was treated by it is taken over as it is.
//
// It is pure: it parses, judges and names. It reads no file and runs nothing; packages/runner does.
package format
