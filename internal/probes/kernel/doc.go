// Package kernel holds the checks of what the kernel hands out to everything on a machine: its clock, process IDs, file
// handles, and the table of tracked connections.
package kernel
