package storage

import (
	"fmt"
	"strings"

	"github.com/fettle-dev/fettle/internal/probes"
)

// FillOptions are the bounds of one file system, for kinds of checks to embed. A bound of 0 is off.
type FillOptions struct {
	SpaceDegradedPercent  int          `key:"spaceDegradedPercent" doc:"degraded when less than this share of space is free; 0: off" min:"0" max:"97"`
	SpaceFatalPercent     int          `key:"spaceFatalPercent" doc:"fatal when less than this share of space is free; 0: off" min:"0" max:"97"`
	SpaceDegradedBytes    probes.Bytes `key:"spaceDegradedBytes" doc:"degraded when less than this is free, whatever the share; 0: off"`
	SpaceFatalBytes       probes.Bytes `key:"spaceFatalBytes" doc:"fatal when less than this is free, whatever the share; 0: off"`
	InodesDegradedPercent int          `key:"inodesDegradedPercent" doc:"degraded when less than this share of inodes is free; 0: off" min:"0" max:"97"`
	InodesFatalPercent    int          `key:"inodesFatalPercent" doc:"fatal when less than this share of inodes is free; 0: off" min:"0" max:"97"`
}

// defaultFill are the bounds where nothing is configured.
var defaultFill = FillOptions{SpaceDegradedPercent: 10, SpaceFatalPercent: 2, InodesDegradedPercent: 10, InodesFatalPercent: 2}

// Validate reports fatal bounds that lie above the degraded ones.
func (o FillOptions) Validate(fault func(what, allowed string, keys ...string)) {
	const below = "fatal at or below degraded"
	percent := func(degraded, fatal int, keys ...string) {
		if degraded > 0 && fatal > degraded {
			fault(fmt.Sprintf("fatal at %d%% is above degraded at %d%%", fatal, degraded), below, keys...)
		}
	}
	percent(o.SpaceDegradedPercent, o.SpaceFatalPercent, "spaceFatalPercent", "spaceDegradedPercent")
	if o.SpaceDegradedBytes > 0 && o.SpaceFatalBytes > o.SpaceDegradedBytes {
		fault(fmt.Sprintf("fatal at %s is above degraded at %s", o.SpaceFatalBytes, o.SpaceDegradedBytes), below, "spaceFatalBytes", "spaceDegradedBytes")
	}
	percent(o.InodesDegradedPercent, o.InodesFatalPercent, "inodesFatalPercent", "inodesDegradedPercent")
}

// fill remembers how bad space and inodes were.
type fill struct{ space, inodes level }

// judge gives the worst reason and what is the case, "" when there is enough of everything.
func (f *fill) judge(o FillOptions, u usage) (reason, what string) {
	f.space = bounds{
		{level: fatal, percent: o.SpaceFatalPercent, absolute: uint64(o.SpaceFatalBytes)},
		{level: degraded, percent: o.SpaceDegradedPercent, absolute: uint64(o.SpaceDegradedBytes)},
	}.judge(f.space, u.space)
	f.inodes = bounds{
		{level: fatal, percent: o.InodesFatalPercent},
		{level: degraded, percent: o.InodesDegradedPercent},
	}.judge(f.inodes, u.inodes)
	switch {
	case f.space == fatal:
		return SpaceExhausted, lessThan(o.SpaceFatalPercent, o.SpaceFatalBytes) + " of space is free"
	case f.inodes == fatal:
		return InodesExhausted, lessThan(o.InodesFatalPercent, 0) + " of inodes are free"
	case f.space == degraded:
		return SpaceLow, lessThan(o.SpaceDegradedPercent, o.SpaceDegradedBytes) + " of space is free"
	case f.inodes == degraded:
		return InodesLow, lessThan(o.InodesDegradedPercent, 0) + " of inodes are free"
	}
	return "", ""
}

// lessThan words the bounds, not the figures: those would change from look to look.
func lessThan(percent int, size probes.Bytes) string {
	var parts []string
	if percent > 0 {
		parts = append(parts, itoa(percent)+"%")
	}
	if size > 0 {
		parts = append(parts, size.String())
	}
	return "less than " + strings.Join(parts, " or ")
}
