// Package server is the prober's side of the child process: it makes the calls that may hang.
//
// It is a package of its own, with few imports, since the child begins and ends in here; see child.Early.
package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fettle-dev/fettle/internal/child"
)

// Name is what the child is started as. Its descriptor 0 is a pipe of Requests, which ends it with its end, and 1 one of
// Responses.
const Name = "fettle-prober"

// Environment keeps the child small: it has next to nothing to collect, and runs one thing at a time.
var Environment = []string{"GOGC=20", "GOMAXPROCS=1"}

func init() {
	child.Early(Name, func() int {
		child.DieFirst()
		if err := Serve(os.Stdin, os.Stdout); err != nil {
			return 1
		}
		return 0
	})
}

// Op is what a request asks for.
type Op string

const (
	// Ping is answered at once, if anything is.
	Ping Op = "ping"
	// Statfs is statfs(2).
	Statfs Op = "statfs"
	// WriteCheck makes a file in a folder, writes it, syncs it, reads it back and removes it.
	WriteCheck Op = "writeCheck"
)

// Request is one call.
type Request struct {
	ID   uint64
	Op   Op
	Path string
}

// Response is what a call came to.
type Response struct {
	ID     uint64
	Statfs *unix.Statfs_t `json:",omitempty"`
	// Step is what failed, e.g. "sync"; empty: nothing did.
	Step string `json:",omitempty"`
	// Errno says why, 0 where Text does.
	Errno syscall.Errno `json:",omitempty"`
	Text  string        `json:",omitempty"`
}

// Err is what failed as an *fs.PathError; nil for success.
func (r Response) Err(path string) error {
	if r.Step == "" {
		return nil
	}
	failed := &fs.PathError{Op: r.Step, Path: path, Err: r.Errno}
	if r.Errno == 0 {
		failed.Err = errors.New(r.Text)
	}
	return failed
}

// Serve answers requests until there are no more. Each call has a goroutine, and a thread while it is in the kernel, so
// that one that does not return keeps no other from being made.
func Serve(r io.Reader, w io.Writer) error {
	var writing sync.Mutex
	answers, requests := json.NewEncoder(w), json.NewDecoder(r)
	for {
		var q Request
		switch err := requests.Decode(&q); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read a request: %w", err)
		}
		go func() {
			a := answer(q)
			writing.Lock()
			defer writing.Unlock()
			_ = answers.Encode(a) // nobody listens any more: then there are no more requests either
		}()
	}
}

func answer(q Request) Response {
	switch q.Op {
	case Ping:
		return Response{ID: q.ID}
	case Statfs:
		var st unix.Statfs_t
		if err := again(func() error { return unix.Statfs(q.Path, &st) }); err != nil {
			return failed(q, "statfs", err)
		}
		return Response{ID: q.ID, Statfs: &st}
	case WriteCheck:
		if step, err := writeCheck(q.Path); err != nil {
			return failed(q, step, err)
		}
		return Response{ID: q.ID}
	default:
		return failed(q, string(q.Op), errors.ErrUnsupported)
	}
}

func failed(q Request, step string, err error) Response {
	a := Response{ID: q.ID, Step: step}
	if !errors.As(err, &a.Errno) {
		a.Text = err.Error()
	}
	return a
}

func again(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
