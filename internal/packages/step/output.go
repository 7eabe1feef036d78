package step

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	// tailSize is how much of the end of the output is kept for the verdict, in bytes.
	tailSize = 4 << 10
	// stamp is how the log has times: local, without a zone, as packages' users know them.
	stamp = "2006-01-02T15:04:05.000000"
)

// output distributes what a step prints.
type output struct {
	mu   sync.Mutex
	left int64 // of what may be written
	lost int64
	tail []byte
	// journal takes the output as it is, log and errlog with a tag and a time on every line. The logs may be nil.
	journal     io.Writer
	log, errlog io.Writer
	files       []*os.File
	now         func() time.Time
	faults      []error
}

// openOutput makes the log files, with the folders they are in.
func openOutput(o Order, journal io.Writer) (*output, error) {
	out := &output{left: o.Output, journal: journal, now: time.Now}
	if o.Log == "" {
		return out, nil
	}
	if err := os.MkdirAll(filepath.Dir(o.Log), 0o755); err != nil {
		return out, fmt.Errorf("make the folder of the log: %w", err)
	}
	for _, name := range []string{o.Log, o.Log + ".err"} {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			return out, fmt.Errorf("open log: %w", err)
		}
		out.files = append(out.files, f)
	}
	out.log, out.errlog = out.files[0], out.files[1]
	return out, nil
}

// stream is one of the two that a step writes. It is an io.Writer.
type stream struct {
	out   *output
	tag   string
	isErr bool
	// begun : the present line has its tag.
	begun bool
}

// Write never fails and never holds the step up for long: it is not the step's fault when a disk is full.
func (s *stream) Write(p []byte) (int, error) {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	s.out.keepTail(p)
	take := p[:min(int64(len(p)), s.out.left)]
	s.out.left -= int64(len(take))
	if s.out.lost += int64(len(p) - len(take)); s.out.left == 0 && len(take) > 0 {
		take = append(bytes.Clone(take), "\n(what follows is more than is written down)\n"...)
	}
	if len(take) == 0 {
		return len(p), nil
	}
	s.out.write(s.out.journal, take)
	tagged := s.tagged(take)
	s.out.write(s.out.log, tagged)
	if s.isErr {
		s.out.write(s.out.errlog, tagged)
	}
	return len(p), nil
}

func (s *stream) tagged(p []byte) []byte {
	var b bytes.Buffer
	for len(p) > 0 {
		if !s.begun {
			fmt.Fprintf(&b, "%s%s ", s.tag, s.out.now().Format(stamp))
			s.begun = true
		}
		line, rest, ended := bytes.Cut(p, []byte("\n"))
		b.Write(line)
		if ended {
			b.WriteByte('\n')
			s.begun = false
		}
		p = rest
	}
	return b.Bytes()
}

// write notes the first fault of each place and goes on without it.
func (o *output) write(to io.Writer, p []byte) {
	if to == nil {
		return
	}
	if _, err := to.Write(p); err != nil {
		o.faults = append(o.faults, err)
		switch to {
		case o.journal:
			o.journal = nil
		case o.log:
			o.log = nil
		case o.errlog:
			o.errlog = nil
		}
	}
}

func (o *output) keepTail(p []byte) {
	if len(p) >= tailSize {
		o.tail = append(o.tail[:0], p[len(p)-tailSize:]...)
		return
	}
	o.tail = append(o.tail, p...)
	if over := len(o.tail) - tailSize; over > 0 {
		o.tail = append(o.tail[:0], o.tail[over:]...)
	}
}

// close gives the end of the output as text, what was dropped, and what went wrong with the logs.
func (o *output) close() (tail string, dropped int64, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	faults := o.faults
	for _, f := range o.files {
		faults = append(faults, f.Close())
	}
	return strings.ToValidUTF8(string(o.tail), "\uFFFD"), o.lost, errors.Join(faults...)
}
