package runtime

import "time"

// restarts is what is remembered of a unit's restarts, by looks at systemd's counter NRestarts. The zero value has not
// seen the unit yet.
type restarts struct {
	seen    bool
	counter uint32
	recent  []growth // oldest first
}

// growth is how many restarts came to light at a look.
type growth struct {
	at    time.Time
	count int
}

// note takes in the counter. What it stood at when it was first seen happened before and counts for nothing; a counter
// that went back was reset (the unit was started by hand, or the machine), and what it shows has happened since.
//
// It keeps no more than it takes to know whether there were limit restarts within the window.
func (r *restarts) note(counter uint32, now time.Time, window time.Duration, limit int) {
	count := 0
	switch {
	case !r.seen:
	case counter < r.counter:
		count = int(counter)
	default:
		count = int(counter - r.counter)
	}
	r.seen, r.counter = true, counter
	if count > 0 {
		r.recent = append(r.recent, growth{at: now, count: min(count, limit)})
	}
	keep, sum := len(r.recent), 0
	for keep > 0 && sum < limit && now.Sub(r.recent[keep-1].at) < window {
		keep--
		sum += r.recent[keep].count
	}
	r.recent = append(r.recent[:0], r.recent[keep:]...)
}

// total is the number of restarts that are remembered.
func (r *restarts) total() int {
	sum := 0
	for _, g := range r.recent {
		sum += g.count
	}
	return sum
}
