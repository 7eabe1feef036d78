package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fettle-dev/fettle/internal/hostfs"
)

// proc is the machine's /proc.
//
// What is read here is of the kernel or of the reader's own network namespace, not of the mount of /proc that it is read
// through. So a container that sees the machine's /proc as an empty folder reads its own instead.
type proc struct{ host *hostfs.Root }

// seen says whether the machine's /proc is mounted below its root.
func (p proc) seen() bool {
	_, err := p.host.Stat("/proc/loadavg")
	return !errors.Is(err, fs.ErrNotExist)
}

// dir is where this process finds it.
func (p proc) dir() string {
	if p.seen() {
		return p.host.Path("/proc")
	}
	return "/proc"
}

// read takes in a file, by its path below /proc.
func (p proc) read(name string) (string, error) {
	path := filepath.Join("/proc", name)
	content, err := p.host.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !p.seen() {
		content, err = os.ReadFile(path)
	}
	return strings.TrimSpace(string(content)), err
}

// number reads a file that holds one number.
func (p proc) number(name string) (uint64, error) {
	text, err := p.read(name)
	if err != nil {
		return 0, err
	}
	return parse(filepath.Join("/proc", name), text)
}

func parse(path, text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %q is not a number", path, text)
	}
	return n, nil
}
