package storage

import (
	"fmt"
	"strings"

	"github.com/fettle-dev/fettle/internal/probes"
)

// share is a bound on what is free: less than a share of it or less than a size. 0 is off.
type share struct {
	percent int
	bytes   probes.Bytes
}

// limits are the bounds of one file system.
type limits struct{ spaceDegraded, spaceFatal, inodesDegraded, inodesFatal share }

// validate reports fatal bounds that lie above the degraded ones, by the keys that all checks give them.
func (l limits) validate(fault func(what, allowed string, keys ...string)) {
	const below = "fatal at or below degraded"
	percent := func(degraded, fatal share, keys ...string) {
		if degraded.percent > 0 && fatal.percent > degraded.percent {
			fault(fmt.Sprintf("fatal at %d%% is above degraded at %d%%", fatal.percent, degraded.percent), below, keys...)
		}
	}
	percent(l.spaceDegraded, l.spaceFatal, "spaceFatalPercent", "spaceDegradedPercent")
	if l.spaceDegraded.bytes > 0 && l.spaceFatal.bytes > l.spaceDegraded.bytes {
		fault(fmt.Sprintf("fatal at %s is above degraded at %s", l.spaceFatal.bytes, l.spaceDegraded.bytes), below, "spaceFatalBytes", "spaceDegradedBytes")
	}
	percent(l.inodesDegraded, l.inodesFatal, "inodesFatalPercent", "inodesDegradedPercent")
}

// fill remembers how bad space and inodes were.
type fill struct{ space, inodes level }

// judge gives the worst reason and what is the case, "" when there is enough of everything.
func (f *fill) judge(l limits, u usage) (reason, what string) {
	f.space = bounds{
		{level: fatal, percent: l.spaceFatal.percent, absolute: uint64(l.spaceFatal.bytes)},
		{level: degraded, percent: l.spaceDegraded.percent, absolute: uint64(l.spaceDegraded.bytes)},
	}.judge(f.space, u.space)
	f.inodes = bounds{
		{level: fatal, percent: l.inodesFatal.percent},
		{level: degraded, percent: l.inodesDegraded.percent},
	}.judge(f.inodes, u.inodes)
	switch {
	case f.space == fatal:
		return SpaceExhausted, l.spaceFatal.String() + " of space is free"
	case f.inodes == fatal:
		return InodesExhausted, l.inodesFatal.String() + " of inodes are free"
	case f.space == degraded:
		return SpaceLow, l.spaceDegraded.String() + " of space is free"
	case f.inodes == degraded:
		return InodesLow, l.inodesDegraded.String() + " of inodes are free"
	}
	return "", ""
}

// String words the bounds, not the figures: those would change from look to look.
func (s share) String() string {
	var parts []string
	if s.percent > 0 {
		parts = append(parts, itoa(s.percent)+"%")
	}
	if s.bytes > 0 {
		parts = append(parts, s.bytes.String())
	}
	return "less than " + strings.Join(parts, " or ")
}
