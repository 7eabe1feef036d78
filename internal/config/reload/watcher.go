package reload

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/probes"
)

// Status is where an agent's configuration stands.
type Status struct {
	// Path of the file that is watched, whether or not it exists.
	Path string
	// Generation counts the configurations that were in force since the start; the first is 1.
	Generation int
	// LoadedAt is when the one in force was read.
	LoadedAt time.Time
	// Hash is how the SHA-256 of the file content in force starts, as sha256sum prints it; empty without a file.
	Hash string
	// Fault is a *Fault, a *RestartNeeded, or nil when the newest configuration is in force.
	Fault error
}

// Watcher keeps a running agent's configuration current.
type Watcher struct {
	source config.Source
	// sound is the source without those values of the environment and the flags that were at fault at the start.
	sound config.Source
	path  string
	log   *slog.Logger
	// Looking and Looked, if set before Run, are called before and after each look at the file, on one goroutine.
	Looking, Looked func()
	// lookAgain is the time from look to look where the file cannot be watched.
	lookAgain time.Duration

	// What is in force. Only the goroutine that reloads touches these after Start.
	config  config.Config
	content []byte

	mu     sync.Mutex
	status Status
}

// Start reads the configuration of an agent whose flags config.AddFlags registered. It never refuses: where the file is
// not valid, the last valid one that the state folder keeps is taken, else the defaults; of the environment and the flags
// the values that are at fault are left out. What is wrong is the Watcher's Fault from then on.
func Start(flags *pflag.FlagSet, kinds []probes.Kind) (config.Config, *Watcher) {
	w := &Watcher{source: config.NewSource(flags, kinds), lookAgain: lookAgain, log: slog.New(slog.DiscardHandler)}
	w.path, _ = w.source.Path()
	w.sound = w.source
	content, err := w.source.Read()
	read := err == nil
	c, parseErr := w.source.Parse(content) // with nothing read this still knows the state folder
	last := recall(c.StateDir, w.path)
	switch {
	case !read:
	case content != nil && blank(content) && !blank(last):
		read, err = false, errEmpty // what a power cut leaves of a file that was not synced
	default:
		err = parseErr
	}
	w.status = Status{Path: w.path, Generation: 1, LoadedAt: time.Now()}
	if err == nil {
		w.config, w.content = c, content
		w.status.Hash = hashOf(content)
		return c, w
	}
	return w.startWithout(err, read, content, last), w
}

// startWithout starts with the best there is of the file, if it was read, its last valid content, and the defaults.
func (w *Watcher) startWithout(cause error, read bool, content, last []byte) config.Config {
	contents, words := [][]byte{nil}, []string{inForceDefaults}
	if last != nil {
		contents, words = append([][]byte{last}, contents...), append([]string{inForceLastGood}, words...)
	}
	if read {
		contents, words = append([][]byte{content}, contents...), append([]string{inForceSound}, words...)
	}
	var used int
	w.config, used, w.sound = w.source.Tolerant(contents...)
	w.content = contents[used]
	w.status.Hash = hashOf(w.content)
	w.status.Fault = &Fault{Cause: cause, InForce: words[used]}
	return w.config
}

// Fault is what is wrong with the newest configuration; nil when it is in force. It does not block.
func (w *Watcher) Fault() error { return w.Status().Fault }

// Status is where the configuration stands. It does not block.
func (w *Watcher) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// reload reads the file and gives a new valid configuration to apply.
func (w *Watcher) reload(apply func(config.Config)) {
	content, err := w.read()
	if err != nil {
		w.refuse(err)
		return
	}
	if bytes.Equal(content, w.content) && w.Fault() == nil {
		return
	}
	var left error // out of the environment and the flags
	next, err := w.source.Parse(content)
	if err != nil {
		if sound, soundErr := w.sound.Parse(content); soundErr == nil {
			next, left, err = sound, err, nil
		}
	}
	if err != nil {
		w.refuse(err)
		return
	}
	w.accept(content, next, left, apply)
}

// read reads the file, unless it is gone or empty: then somebody is about to write it, or meant to.
func (w *Watcher) read() ([]byte, error) {
	if at, err := os.Stat(w.path); err == nil && !at.Mode().IsRegular() {
		return nil, fmt.Errorf("read configuration: %s is not a regular file", w.path) // reading another may never end
	}
	content, err := w.source.Read()
	switch {
	case err != nil:
		return nil, err
	case content == nil && !blank(w.content):
		return nil, errGone
	case blank(content) && !blank(w.content):
		return nil, errEmpty
	}
	return content, nil
}

// refuse keeps what is in force.
func (w *Watcher) refuse(cause error) {
	words := inForceLastGood
	if w.content == nil {
		words = inForceDefaults
	}
	if w.say(&Fault{Cause: cause, InForce: words}) {
		w.log.Warn("configuration refused", "file", w.path, "error", summary(cause), "inForce", words)
	}
}

func (w *Watcher) accept(content []byte, next config.Config, left error, apply func(config.Config)) {
	kept := next.KeepForRun(w.config)
	changed := next.Changes(w.config)
	w.config, w.content = next, content
	w.store(content)
	w.mu.Lock()
	w.status.LoadedAt, w.status.Hash = time.Now(), hashOf(content)
	if len(changed) > 0 {
		w.status.Generation++
	}
	generation := w.status.Generation
	w.mu.Unlock()

	var fault error
	switch {
	case left != nil:
		fault = &Fault{Cause: left, InForce: inForceSound}
	case len(kept) > 0:
		fault = &RestartNeeded{Keys: kept}
	}
	switch another := w.say(fault); {
	case another && fault != nil:
		w.log.Warn("configuration is not in force as it stands", "file", w.path, "error", fault)
	case another:
		w.log.Info("configuration is in force as it stands", "file", w.path)
	}
	if len(changed) > 0 {
		w.log.Info("configuration changed", "file", w.path, "generation", generation, "keys", changed)
		apply(next)
	}
}

// say sets the fault, and tells whether it is another than before.
func (w *Watcher) say(fault error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.status.Fault
	w.status.Fault = fault
	return (was == nil) != (fault == nil) || was != nil && was.Error() != fault.Error()
}

// store keeps the content for a start with a file that is not valid. An agent works without.
func (w *Watcher) store(content []byte) {
	if err := remember(w.config.StateDir, w.path, content); err != nil {
		w.log.Warn("the configuration is not kept for a later start", "error", err)
	}
}

func blank(content []byte) bool { return len(bytes.TrimSpace(content)) == 0 }

func hashOf(content []byte) string {
	if content == nil {
		return ""
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:6])
}
