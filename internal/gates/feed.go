package gates

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
)

// Pauses between tries to read.
const firstPause, lastPause = time.Second, 15 * time.Second

// endurance is how long the API server may answer with errors before what was read before counts no more. While it
// restarts it refuses what it allows a moment later.
const endurance = 30 * time.Second

// patience is how long nobody may have looked before that counts as not readable. It does not make the API server's
// silence count against what was known: then nothing is.
const patience = 30 * time.Second

// errUnusable is why an object cannot be watched although the API server answers.
var errUnusable = errors.New("")

// feed keeps one selection of objects current, in the form in which it is judged. It is the store of its own reflector.
type feed[V any] struct {
	// find says where to list and watch.
	find func(context.Context) (cache.ListerWatcher, error)
	// keep gives what is kept of an object; without ok the object is of no interest.
	keep func(metav1.Object) (kept V, ok bool)
	same func(a, b V) bool
	// changed is told of single objects, under the lock of update. A nil means that there is none.
	changed func(name string, was, is *V)
	gate    *watched
	log     logr.Logger

	// Guarded by the gate's lock.
	rows map[string]V
	feedState
	failingSince time.Time
}

// feedState is what a feed knows of itself.
type feedState struct {
	// read says that rows were complete once.
	read bool
	// fault is why rows do not count, or empty.
	fault string
}

func (s feedState) settled() bool { return s.read || s.fault != "" }

// run reads until the context ends.
func (f *feed[V]) run(ctx context.Context) {
	overdue := time.AfterFunc(patience, f.overdue)
	defer overdue.Stop()
	pauses := newPauses()
	for ctx.Err() == nil {
		began := time.Now()
		from, err := f.find(ctx)
		if err == nil {
			err = f.follow(ctx, from)
		}
		f.failed(ctx, err)
		if time.Since(began) > lastPause {
			pauses = newPauses()
		}
		pause(ctx, pauses.Step())
	}
}

// overdue gives up waiting for the first answer, until there is one.
func (f *feed[V]) overdue() {
	f.gate.update(func() {
		if !f.settled() {
			f.fault = fmt.Sprintf("the API server has not answered for %s", patience)
			f.gate.news.everyNode = true
		}
	})
}

// follow lists and watches until the context ends or the resource is gone.
func (f *feed[V]) follow(ctx context.Context, from cache.ListerWatcher) error {
	reflector := cache.NewReflectorWithOptions(from, nil, f, cache.ReflectorOptions{Logger: &f.log})
	pauses := newPauses()
	for ctx.Err() == nil {
		began := time.Now()
		err := reflector.ListAndWatchWithContext(ctx)
		if apierrors.IsNotFound(err) {
			return err
		}
		f.failed(ctx, err)
		if time.Since(began) > lastPause {
			pauses = newPauses()
		}
		pause(ctx, pauses.Step())
	}
	return nil
}

func newPauses() wait.Backoff {
	return wait.Backoff{Duration: firstPause, Factor: 2, Jitter: 0.2, Steps: 30, Cap: lastPause}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// failed takes note of an error, if there is one. What was never read is not readable at once; what was read stands for a while, and, while
// the API server gives no answer at all, for as long as that takes.
func (f *feed[V]) failed(ctx context.Context, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	f.gate.update(func() {
		was := f.feedState
		switch {
		case !f.read:
			f.fault = err.Error()
		case !answered(err):
			return
		case f.failingSince.IsZero():
			f.failingSince = time.Now()
		case time.Since(f.failingSince) >= endurance:
			f.fault = err.Error()
		}
		f.gate.news.everyNode = was != f.feedState
	})
}

func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) || errors.Is(err, errUnusable)
}

// row is what is kept of an object, with the names by which reflectors know objects.
type row[V any] struct {
	metav1.ObjectMeta
	kept V
	ok   bool
}

// Transformer makes the reflector keep rows instead of whole objects while it reads a long list.
func (f *feed[V]) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return f.rowOf(obj), nil }
}

func (f *feed[V]) rowOf(obj any) *row[V] {
	switch o := obj.(type) {
	case *row[V]:
		return o
	case metav1.Object:
		r := &row[V]{ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName()}}
		r.kept, r.ok = f.keep(o)
		return r
	default: // reflectors have objects only
		panic(errors.New("not an object"))
	}
}

// Replace implements cache.ReflectorStore.
func (f *feed[V]) Replace(list []any, _ string) error {
	rows := make(map[string]V, len(list))
	for _, obj := range list {
		if r := f.rowOf(obj); r.ok {
			rows[r.Name] = r.kept
		}
	}
	f.gate.update(func() {
		was := f.feedState
		f.read, f.fault, f.failingSince = true, "", time.Time{}
		f.gate.news.everyNode = was != f.feedState
		for name := range f.rows {
			if _, there := rows[name]; !there {
				f.set(name, nil)
			}
		}
		for name, kept := range rows {
			f.set(name, &kept)
		}
	})
	return nil
}

// Add implements cache.ReflectorStore.
func (f *feed[V]) Add(obj any) error {
	r := f.rowOf(obj)
	f.gate.update(func() {
		if r.ok {
			f.set(r.Name, &r.kept)
		} else {
			f.set(r.Name, nil)
		}
	})
	return nil
}

// Update implements cache.ReflectorStore.
func (f *feed[V]) Update(obj any) error { return f.Add(obj) }

// Delete implements cache.ReflectorStore.
func (f *feed[V]) Delete(obj any) error {
	r := f.rowOf(obj)
	f.gate.update(func() { f.set(r.Name, nil) })
	return nil
}

// Resync implements cache.ReflectorStore.
func (f *feed[V]) Resync() error { return nil }

// set changes one row, under the lock.
func (f *feed[V]) set(name string, is *V) {
	var was *V
	if kept, had := f.rows[name]; had {
		was = &kept
	}
	switch {
	case is == nil && was == nil, is != nil && was != nil && f.same(*was, *is):
		return
	case is == nil:
		delete(f.rows, name)
	case f.rows == nil:
		f.rows = map[string]V{name: *is}
	default:
		f.rows[name] = *is
	}
	f.changed(name, was, is)
}
