// Package network holds the checks of a machine's way to the rest of the cluster.
package network
