package endpoints

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"time"
)

const (
	// coalesce is how long changes are gathered before they are written.
	coalesce = time.Second
	// lookAgain is how often is looked for changes that nobody told of.
	lookAgain = 10 * time.Second
	// rewriteAfter is the age of a file that says nothing new at which it is written again, so that its time shows that
	// the agent is there.
	rewriteAfter = time.Minute
	// fileMode : everybody may read it.
	fileMode = 0o644
)

// keepFile keeps the status file current until the context ends. A file that cannot be written is tried again at the next
// change, and said once for each reason. It stays when the agent ends, with the last there was to say: its time tells from
// when it is.
func (s *Server) keepFile(ctx context.Context) {
	if s.o.Socket != "" {
		select {
		case <-ctx.Done():
		case <-s.tried:
		}
	}
	k := keeper{server: s}
	k.keep()
	for {
		select {
		case <-ctx.Done():
			k.keep()
			return
		case <-time.After(lookAgain):
		case <-s.o.Board.changed:
			select {
			case <-ctx.Done():
			case <-time.After(coalesce):
			}
		}
		k.keep()
	}
}

// keeper knows what the status file says.
type keeper struct {
	server  *Server
	written Status
	at      time.Time
	fault   string
}

// keep writes the file when it is to say something else, or has not been written for long.
func (k *keeper) keep() {
	if k.server.yields.Load() {
		return
	}
	now, log := k.server.Status(), k.server.o.Log
	if !k.at.IsZero() && k.fault == "" && time.Since(k.at) < rewriteAfter && sameSubstance(now, k.written) {
		return
	}
	err := writeStatus(k.server.o.StatusFile, now)
	switch {
	case err != nil && err.Error() != k.fault:
		log.Warn("cannot write the status file; trying again", "error", err)
	case err == nil && k.fault != "":
		log.Info("the status file is written again", "statusFile", k.server.o.StatusFile)
	}
	k.written, k.at, k.fault = now, time.Now(), text(err)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// sameSubstance reports whether two statuses differ only in what each look moves.
func sameSubstance(a, b Status) bool {
	return reflect.DeepEqual(still(a), still(b))
}

func still(s Status) Status {
	s.SaidAt = time.Time{}
	checks := make([]Check, len(s.Health.Checks))
	for i, c := range s.Health.Checks {
		c.LastLook, c.TookSeconds = time.Time{}, 0
		checks[i] = c
	}
	s.Health.Checks = checks
	if s.Cluster != nil {
		c := *s.Cluster
		c.Lease.RenewedAt = time.Time{}
		s.Cluster = &c
	}
	return s
}

// writeStatus replaces the file as a whole. It is not synced: after a power cut there is another boot to speak of.
func writeStatus(path string, s Status) (err error) {
	body, err := encode(s)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the status file's folder: %w", err)
	}
	temporary := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
	defer func() {
		if err != nil {
			_ = os.Remove(temporary) // on a full disk it is in the way
		}
	}()
	if err := writeOpen(temporary, body); err != nil {
		return fmt.Errorf("write the status file: %w", err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("put the status file in place: %w", err)
	}
	return nil
}

func writeOpen(path string, body []byte) (err error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Chmod(fileMode); err != nil { // whatever the process's umask
		return err
	}
	_, err = f.Write(body)
	return err
}
