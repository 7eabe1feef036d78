package storage

import (
	"math"
	"strconv"

	"golang.org/x/sys/unix"
)

// amount is how much of something there is. A total of 0 means that the file system does not count it, as btrfs does
// not count inodes.
type amount struct{ free, total uint64 }

// usage is the fill of a file system: bytes and inodes.
type usage struct{ space, inodes amount }

func usageOf(path string) (usage, error) {
	var st unix.Statfs_t
	for {
		switch err := unix.Statfs(path, &st); err {
		case nil:
			return usageFrom(st), nil
		case unix.EINTR:
		default:
			return usage{}, err
		}
	}
}

// usageFrom leaves out blocks kept for root: a total of used and available ones, as df has it.
func usageFrom(st unix.Statfs_t) usage {
	size := uint64(st.Frsize)
	if size == 0 {
		size = uint64(st.Bsize)
	}
	taken := st.Blocks - min(st.Bfree, st.Blocks)
	return usage{
		space:  amount{free: times(st.Bavail, size), total: times(taken+st.Bavail, size)},
		inodes: amount{free: st.Ffree, total: st.Files},
	}
}

func times(n, size uint64) uint64 {
	if size != 0 && n > math.MaxUint64/size {
		return math.MaxUint64
	}
	return n * size
}

// level is how little of something is left.
type level int

const (
	enough level = iota
	degraded
	fatal
)

// bound is where a level begins; 0 is off. Either part is enough.
type bound struct {
	level    level
	percent  int
	absolute uint64
}

// bounds are ordered from worst to mildest.
type bounds []bound

// A level is left only when this much more is free than it takes to enter it, so that a file system that hovers at a
// bound does not flicker: 3 points, or a tenth of an absolute bound.
const clearPoints = 3

// judge gives the level of an amount that was at level prev at the look before.
func (b bounds) judge(prev level, a amount) level {
	if a.total == 0 {
		return enough
	}
	for _, at := range b {
		percent, absolute := float64(at.percent), at.absolute
		if prev >= at.level {
			if percent > 0 {
				percent += clearPoints
			}
			absolute += absolute / 10
		}
		if float64(a.free)*100 < percent*float64(a.total) || a.free < absolute {
			return at.level
		}
	}
	return enough
}

func itoa(n int) string { return strconv.Itoa(n) }
