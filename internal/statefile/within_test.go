package statefile

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A file system that hangs costs the first caller patience and the others nothing, and only in that folder. When it
// answers, everything is as before.
func TestAFileSystemThatHangsHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan struct{})
		hanging := func() error { <-answers; return nil }
		prompt := func() error { return nil }
		call := func(dir string, work func() error, want error, after time.Duration) {
			t.Helper()
			begun := time.Now()
			err := within(dir, work)
			if took := time.Since(begun); !errors.Is(err, want) || took != after {
				t.Errorf("%v after %s, want %v after %s", err, took, want, after)
			}
		}
		call("a", prompt, nil, 0)
		call("a", hanging, ErrHangs, patience)
		call("a", prompt, ErrHangs, 0)
		call("b", prompt, nil, 0)
		close(answers)
		synctest.Wait()
		call("a", prompt, nil, 0)
		if len(overdue.in) > 0 {
			t.Errorf("still overdue: %v", overdue.in)
		}
	})
}
