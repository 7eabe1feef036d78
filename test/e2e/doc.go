// Package e2e tests the whole product on real parts: what its README promises, what it survives, what it writes.
package e2e
