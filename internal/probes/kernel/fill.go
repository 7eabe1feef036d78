package kernel

import "fmt"

// fill is how much of something is in use. A limit of 0 is none.
type fill struct{ used, limit uint64 }

// level is how full something is.
type level int

const (
	roomy level = iota
	low
	exhausted
)

// bounds are the shares of the limit, in percent, from which on it is low or exhausted. 0 is off.
type bounds struct{ low, exhausted int }

// A level is left only this many points below the share that it takes to enter it, or at half of a small share, so that
// something that hovers at a bound does not flicker.
const clearPoints = 3

// judge gives the level of a fill that was at level prev at the look before.
func (b bounds) judge(prev level, f fill) level {
	switch {
	case reaches(f, b.exhausted, prev >= exhausted):
		return exhausted
	case reaches(f, b.low, prev >= low):
		return low
	default:
		return roomy
	}
}

func reaches(f fill, percent int, already bool) bool {
	if percent == 0 || f.limit == 0 {
		return false
	}
	bound := float64(percent)
	if already {
		bound = max(bound-clearPoints, bound/2)
	}
	return float64(f.used)*100 >= bound*float64(f.limit)
}

// validate reports an exhausted bound that lies below the low one.
func (b bounds) validate(fault func(what, allowed string, keys ...string)) {
	if b.exhausted > 0 && b.exhausted < b.low {
		fault(fmt.Sprintf("fatal at %d%% is below degraded at %d%%", b.exhausted, b.low), "fatal at or above degraded", "fatalPercent", "degradedPercent")
	}
}
