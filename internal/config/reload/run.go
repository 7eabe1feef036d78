package reload

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/fettle-dev/fettle/internal/config"
)

const (
	// quiet is how long a file must not have changed before it is read: writers write in pieces.
	quiet = 250 * time.Millisecond
	// patience is how long after the first change a file is read at last that never stops changing or is never closed.
	patience = 30 * time.Second
	// lookAgain is the time from look to look where inotify is not to be had.
	lookAgain = 2 * time.Minute
	// farewell is how long an ending Run waits for a file system that hangs.
	farewell = time.Second
)

// Run gives apply each new configuration, whole and valid, when the file changes or hup tells so, until the context ends.
// Keys that only a new start can change keep their values. apply is called from one goroutine and never after Run
// returned. Run also keeps the configuration of the start for later ones, so call it when the state folder is ours.
func (w *Watcher) Run(ctx context.Context, hup <-chan os.Signal, log *slog.Logger, apply func(config.Config)) {
	w.log = log
	ctx, cancel := context.WithCancel(ctx)
	var applying sync.Mutex
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.follow(ctx, hup, func(c config.Config) {
			applying.Lock()
			defer applying.Unlock()
			if ctx.Err() == nil {
				apply(c)
			}
		})
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		select {
		case <-ended:
		case <-time.After(farewell): // the file's file system hangs
		}
	}
	cancel()
	applying.Lock() // for an apply that has begun; none begins after it
	defer applying.Unlock()
}

// follow is Run's loop.
func (w *Watcher) follow(ctx context.Context, hup <-chan os.Signal, apply func(config.Config)) {
	if fault := w.Fault(); fault != nil {
		w.log.Warn("configuration is not in force as it stands", "file", w.path, "error", fault)
	} else {
		w.store(w.content)
	}
	watch := newFolders(w.path, w.lookAgain, w.log)
	defer watch.close()

	since := time.Now() // the first change that was not looked at
	pending := true
	timer := time.NewTimer(0)
	defer timer.Stop()
	expect := func(wait time.Duration) {
		if !pending {
			since, pending = time.Now(), true
		}
		if time.Since(since) < patience {
			timer.Reset(wait)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
			w.log.Info("told to reload the configuration", "file", w.path)
			expect(0)
		case event, open := <-watch.events():
			switch {
			case !open:
				watch.lost(errEnded)
				expect(0)
			case watch.concerns(event):
				expect(quiet)
			}
		case err := <-watch.errors():
			w.log.Warn("watching the configuration", "file", w.path, "error", err)
			expect(quiet) // perhaps events were lost
		case <-timer.C:
			if time.Since(since) < patience && beingWritten(w.path) {
				timer.Reset(quiet)
				continue
			}
			pending = false
			if !watch.refresh() {
				timer.Reset(w.lookAgain)
			}
			if w.Looking != nil {
				w.Looking()
			}
			w.reload(apply)
			if w.Looked != nil {
				w.Looked()
			}
			w.log.Debug("looked at the configuration", "file", w.path, "fault", w.Fault())
		}
	}
}
