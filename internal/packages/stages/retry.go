package stages

import "time"

const (
	// firstBackoff is before the second retry; the first comes at once. It doubles.
	firstBackoff = 10 * time.Second
	// lastBackoff is where it stops to grow.
	lastBackoff = 5 * time.Minute
)

// Backoff is how long to wait after so many failures in a row: 0, 10 s, 20 s, 40 s … 5 min.
func Backoff(failures int) time.Duration {
	if failures < 2 {
		return 0
	}
	wait := firstBackoff
	for range failures - 2 {
		if wait *= 2; wait >= lastBackoff {
			return lastBackoff
		}
	}
	return wait
}

// due is when a stage that failed may run again. A failure that seems to lie in the future, since the clock was set back,
// counts as of now.
func due(failures int, last, now time.Time) time.Time {
	if last.After(now) {
		last = now
	}
	return last.Add(Backoff(failures))
}

// exhausted : the stage has failed as often as it may.
func (l Limits) exhausted(failures int) bool { return failures > l.Retries }

// expired : a stage that was given up then may be tried again.
func (l Limits) expired(last, now time.Time) bool {
	return l.FailedTTL > 0 && !now.Before(last.Add(l.FailedTTL))
}
