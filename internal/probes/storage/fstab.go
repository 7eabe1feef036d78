package storage

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// fstabEntry is a line of fstab(5).
type fstabEntry struct {
	source, mountpoint, fsType string
	options                    []string
}

// parseFstab leaves out what names no mount point. Lines that make no sense are no entries, as for systemd.
func parseFstab(content string) []fstabEntry {
	var entries []fstabEntry
	for line := range strings.Lines(content) {
		fields := strings.Fields(line)
		if len(fields) < 3 || strings.HasPrefix(fields[0], "#") || !strings.HasPrefix(fields[1], "/") || fields[2] == "swap" || fields[2] == "ignore" {
			continue
		}
		e := fstabEntry{source: unescape(fields[0]), mountpoint: path.Clean(unescape(fields[1])), fsType: fields[2], options: []string{"defaults"}}
		if len(fields) > 3 {
			e.options = strings.Split(fields[3], ",")
		}
		entries = append(entries, e)
	}
	return entries
}

// unescape undoes \040 and the like.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func (e fstabEntry) has(option string) bool { return slices.Contains(e.options, option) }

// onDevice says whether it is of a disk of the machine.
func (e fstabEntry) onDevice() bool {
	return strings.HasPrefix(e.source, "/dev/") || slices.ContainsFunc([]string{"UUID=", "LABEL=", "PARTUUID=", "PARTLABEL="}, func(tag string) bool { return strings.HasPrefix(e.source, tag) })
}

// mustBeMounted : from boot on, and for good.
func (e fstabEntry) mustBeMounted() bool {
	return !e.has("noauto") && !e.has("nofail") && !e.has("x-systemd.automount")
}
