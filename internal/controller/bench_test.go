package controller

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/go-logr/logr"
)

// nodesInBenchmarks is 200, or FETTLE_BENCH_NODES.
func nodesInBenchmarks(b *testing.B) int {
	n := os.Getenv("FETTLE_BENCH_NODES")
	if n == "" {
		return 200
	}
	nodes, err := strconv.Atoi(n)
	if err != nil {
		b.Fatal(err)
	}
	return nodes
}

// BenchmarkAllNodesAtOnce measures how long it takes until all taints are right, beside a bare loop that does the same
// writes with as many workers and nothing else:
//
//	rule: one edit of a rule makes it hold, or release, every node; the loop patches every node.
//	conditions: the condition of every node changes; the loop's writers patch the taint after each condition.
//
// Each iteration is an interleaved pair; the medians and the median of the pairs' ratios are reported. Run it with
// -benchtime=5x or more; FETTLE_BENCH_NODES sets the number of nodes.
func BenchmarkAllNodesAtOnce(b *testing.B) {
	o := DefaultOptions()
	o.HealthProbeBindAddress, o.Log = "0", logr.Discard()
	w := newWorld(b)
	clients, err := kubernetes.NewForConfig(w.Config())
	if err != nil {
		b.Fatal(err)
	}
	f := &benchFleet{world: w, clients: clients, workers: o.Concurrency, nodes: nodesInBenchmarks(b)}
	f.make(b)
	w.rule(b, "bench", "bench")
	w.run(b, o)
	f.await(b, true)

	b.Run("rule", func(b *testing.B) {
		f.compare(b, func(held bool) time.Duration {
			began := time.Now()
			w.editRule(b, "bench", func(r *rule) {
				r.Spec.Conditions[0].RequiredStatus = "True" // nobody has the condition
				if !held {
					r.Spec.Conditions[0].RequiredStatus = "Unknown"
				}
			})
			f.await(b, held)
			return time.Since(began)
		}, func(held bool) time.Duration {
			began := time.Now()
			f.each(b, "bare-", func(ctx context.Context, name string) error { return f.taint(ctx, name, held) })
			return time.Since(began)
		})
	})
	w.editRule(b, "bench", func(r *rule) { r.Spec.Conditions[0].RequiredStatus = "True" })
	f.await(b, true)
	b.Run("conditions", func(b *testing.B) {
		f.compare(b, func(held bool) time.Duration {
			began := time.Now()
			f.each(b, "controlled-", func(ctx context.Context, name string) error { return f.condition(ctx, name, held) })
			f.await(b, held)
			return time.Since(began)
		}, func(held bool) time.Duration {
			began := time.Now()
			f.each(b, "bare-", func(ctx context.Context, name string) error {
				if err := f.condition(ctx, name, held); err != nil {
					return err
				}
				return f.taint(ctx, name, held)
			})
			return time.Since(began)
		})
	})
}

// benchFleet is nodes that the controller taints, and as many that a bare loop does.
type benchFleet struct {
	*world
	clients        kubernetes.Interface
	workers, nodes int
}

func (f *benchFleet) make(b *testing.B) {
	for prefix, pool := range map[string]string{"controlled-": "bench", "bare-": "other"} {
		f.each(b, prefix, func(ctx context.Context, name string) error {
			// As many fields as a node has, so that a write costs what it costs.
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": pool}, Annotations: map[string]string{"example.com/a": "b"}}}
			for i := range 20 {
				node.Labels[fmt.Sprintf("example.com/label-%d", i)] = "some-value"
			}
			if _, err := f.clients.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
				return err
			}
			return f.taintAs(ctx, name, `[{"op":"add","path":"/spec/taints","value":[]}]`)
		})
	}
}

// each calls do for every node of one kind, with as many workers as the controller has.
func (f *benchFleet) each(b *testing.B, prefix string, do func(ctx context.Context, name string) error) {
	b.Helper()
	names := make(chan string)
	var workers sync.WaitGroup
	for range f.workers {
		workers.Go(func() {
			for name := range names {
				if err := do(b.Context(), name); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for i := range f.nodes {
		names <- fmt.Sprintf("%s%04d", prefix, i)
	}
	close(names)
	workers.Wait()
}

func (f *benchFleet) taint(ctx context.Context, name string, held bool) error {
	if held {
		return f.taintAs(ctx, name, `[{"op":"add","path":"/spec/taints","value":[{"key":"r.example.com/bench","value":"pending","effect":"NoSchedule"}]}]`)
	}
	return f.taintAs(ctx, name, `[{"op":"add","path":"/spec/taints","value":[]}]`)
}

func (f *benchFleet) taintAs(ctx context.Context, name, patch string) error {
	_, err := f.clients.CoreV1().Nodes().Patch(ctx, name, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func (f *benchFleet) condition(ctx context.Context, name string, held bool) error {
	status := "True"
	if held {
		status = "False"
	}
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"example.com/Network","status":%q,"reason":"Test"}]}}`, status)
	_, err := f.clients.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	return err
}

// await waits until every node of the controller is held, or none is. It follows them with a watch, so that waiting costs the API
// server as little as it can.
func (f *benchFleet) await(b *testing.B, held bool) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 2*time.Minute)
	defer cancel()
	selector := metav1.ListOptions{LabelSelector: "pool=bench"}
	list, err := f.clients.CoreV1().Nodes().List(ctx, selector)
	if err != nil {
		b.Fatal(err)
	}
	right := map[string]bool{}
	look := func(n *corev1.Node) { right[n.Name] = taintedWith("r.example.com/bench")(n) == held }
	for i := range list.Items {
		look(&list.Items[i])
	}
	selector.ResourceVersion = list.ResourceVersion
	watch, err := f.clients.CoreV1().Nodes().Watch(ctx, selector)
	if err != nil {
		b.Fatal(err)
	}
	defer watch.Stop()
	for {
		count := 0
		for _, is := range right {
			if is {
				count++
			}
		}
		if count == f.nodes {
			return
		}
		e, ok := <-watch.ResultChan()
		if !ok {
			b.Fatalf("%d of %d nodes are right", count, f.nodes)
		}
		if n, is := e.Object.(*corev1.Node); is {
			look(n)
		}
	}
}

// compare runs pairs, each first the controller's part and then the bare loop's or the other way round.
func (f *benchFleet) compare(b *testing.B, controller, bare func(held bool) time.Duration) {
	var ours, theirs, ratios []float64
	held := false
	for i := 0; b.Loop(); i++ {
		var c, l time.Duration
		if i%2 == 0 {
			c, l = controller(held), bare(held)
		} else {
			l, c = bare(held), controller(held)
		}
		ours, theirs = append(ours, c.Seconds()), append(theirs, l.Seconds())
		ratios = append(ratios, c.Seconds()/l.Seconds())
		held = !held
		f.settle(b)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(ours), "controller-s")
	b.ReportMetric(median(theirs), "bare-s")
	b.ReportMetric(median(ratios), "ratio")
}

// settle lets the events of a part get out of the way of the next.
func (f *benchFleet) settle(b *testing.B) {
	mark, err := f.Mark()
	if err != nil {
		b.Fatal(err)
	}
	for {
		time.Sleep(time.Second)
		since, err := f.RequestsSince(mark)
		if err != nil {
			b.Fatal(err)
		}
		if len(writesOf(since)) == 0 {
			return
		}
		if mark, err = f.Mark(); err != nil {
			b.Fatal(err)
		}
	}
}

func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	return values[len(values)/2]
}
