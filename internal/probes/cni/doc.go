// Package cni holds the checks of the machine's CNI network plugin, as far as files show it.
package cni
