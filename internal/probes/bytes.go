package probes

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// Bytes is a size in bytes. It is written as a whole number with an optional binary unit: 512Mi, 20Gi.
type Bytes uint64

var units = []struct {
	suffix string
	bytes  uint64
}{{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40}}

// UnmarshalText reads a size.
func (b *Bytes) UnmarshalText(text []byte) error {
	number, unit := string(text), uint64(1)
	for _, u := range units {
		if rest, found := strings.CutSuffix(number, u.suffix); found {
			number, unit = rest, u.bytes
			break
		}
	}
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil || n > math.MaxInt64/unit {
		return errors.New("is not a size")
	}
	*b = Bytes(n * unit)
	return nil
}

// Allowed says what UnmarshalText takes.
func (Bytes) Allowed() string {
	return "a whole number of bytes, or with a unit Ki, Mi, Gi or Ti, e.g. 20Gi"
}

// String writes the size with the largest unit that divides it.
func (b Bytes) String() string {
	for i := len(units) - 1; i >= 0; i-- {
		if u := units[i]; b != 0 && uint64(b)%u.bytes == 0 {
			return strconv.FormatUint(uint64(b)/u.bytes, 10) + u.suffix
		}
	}
	return strconv.FormatUint(uint64(b), 10)
}
