// Package custom holds the kinds of checks that users make their own of: a command, an HTTP request, a TCP connection, a
// file.
package custom
