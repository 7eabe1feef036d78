// Package storage holds the checks of a machine's file systems.
package storage
