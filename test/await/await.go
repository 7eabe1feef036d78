// Package await waits in tests for what comes about by itself.
package await

import (
	"testing"
	"time"
)

// limit only ends a test that would wait for ever: machines may be very busy.
const limit = 4 * time.Minute

// That waits until something holds, and ends the test when it does not come about.
func That(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("did not come about within %s: %s", limit, what)
		}
	}
}
