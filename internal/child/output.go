package child

import (
	"bytes"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// output is what comes out of a command: its two streams, and the report of why it could not be executed.
type output struct {
	stdout, stderr, report stream
	// flooded is closed when more than Flood came out.
	flooded chan struct{}

	reading sync.WaitGroup
	total   atomic.Int64
}

// stream is one pipe.
type stream struct {
	r    *os.File
	most int
	kept []byte
}

// start starts the command of a Spec and reads its output.
func start(s Spec) (*Process, *output, error) {
	out := &output{flooded: make(chan struct{})}
	out.stdout.most, out.stderr.most, out.report.most = s.Output, s.Output, DefaultOutput
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, nil, err
	}
	theirs := []*os.File{null}
	defer func() { closeAll(theirs) }()
	var ours []*os.File
	for _, st := range out.streams() {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(ours)
			return nil, nil, err
		}
		st.r, ours, theirs = r, append(ours, r), append(theirs, w)
		if st.most == 0 {
			st.most = DefaultOutput
		}
	}
	p, err := Start(become, append([]string{s.dir()}, s.Argv...), s.environment(), theirs...)
	if err != nil {
		closeAll(ours)
		return nil, nil, err
	}
	for _, st := range out.streams() {
		out.reading.Go(func() { out.read(st) })
	}
	return p, out, nil
}

func (o *output) streams() []*stream { return []*stream{&o.stdout, &o.stderr, &o.report} }

// read keeps the beginning, from the first thing that shows, and drops the rest.
func (o *output) read(st *stream) {
	piece := make([]byte, 4<<10)
	for {
		n, err := st.r.Read(piece)
		shows := piece[:n]
		if len(st.kept) == 0 {
			shows = bytes.TrimLeft(shows, blank)
		}
		st.kept = append(st.kept, shows[:min(len(shows), st.most-len(st.kept))]...)
		if before := o.total.Add(int64(n)) - int64(n); before <= Flood && before+int64(n) > Flood {
			close(o.flooded)
		}
		if err != nil {
			return // io.EOF, or the time for a pipe that somebody holds open is over
		}
	}
}

// blank are characters that do not show.
const blank = " \t\r\n\v\f\x00"

// finish waits for the rest and closes the pipes.
func (o *output) finish() {
	until := time.Now().Add(drain)
	for _, st := range o.streams() {
		_ = st.r.SetReadDeadline(until) // pipes have deadlines
	}
	o.reading.Wait()
	for _, st := range o.streams() {
		st.r.Close()
	}
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
