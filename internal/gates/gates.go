package gates

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/objectstatus"
	"github.com/fettle-dev/fettle/internal/tolerations"
)

// Options of Gates. The functions are called after a change, from several goroutines; they must not wait for anything.
type Options struct {
	// Config and HTTPClient reach the API server.
	Config     *rest.Config
	HTTPClient *http.Client
	// Analyzer tells whether an object is ready. Nil means objectstatus.KStatus{}. Gates are stricter than it, see
	// objectstatus.Gate.
	Analyzer objectstatus.Analyzer
	// Comparison says whether tolerations with the operators Lt and Gt match in this cluster.
	Comparison tolerations.Comparison
	// NodeChanged is told of a node for which a verdict may have changed.
	NodeChanged func(node string)
	// RulesChanged is told of rules of which a verdict may have changed for every node that they select.
	RulesChanged func(rules []types.UID)
	// Reworded is called when nothing but a message changed.
	Reworded func()
	Log      logr.Logger
}

// Gates watches the objects that rules require. It may be used concurrently.
type Gates struct {
	o      Options
	reader *reader
	ctx    context.Context // of the watches

	mu sync.RWMutex
	// Guarded by mu.
	objects    map[readinessv1alpha1.ReadyObject]*objectGate
	daemonSets map[readinessv1alpha1.DaemonSetOnNode]*daemonSetGate
}

// New makes Gates that watch nothing yet. Their watches end with the context.
func New(ctx context.Context, o Options) (*Gates, error) {
	if o.Analyzer == nil {
		o.Analyzer = objectstatus.KStatus{}
	}
	r, err := newReader(o.Config, o.HTTPClient)
	if err != nil {
		return nil, fmt.Errorf("make a client for the objects that rules require: %w", err)
	}
	return &Gates{
		o: o, ctx: ctx, reader: r,
		objects:    map[readinessv1alpha1.ReadyObject]*objectGate{},
		daemonSets: map[readinessv1alpha1.DaemonSetOnNode]*daemonSetGate{},
	}, nil
}

// Require watches what these rules require, and nothing else from then on. Rules that are suspended or being deleted need
// nothing. It waits for nothing: verdicts say what has not been read yet, and the rules concerned are told of when it was.
func (g *Gates) Require(rules []readinessv1alpha1.NodeReadinessRule) {
	objects, daemonSets := map[readinessv1alpha1.ReadyObject][]types.UID{}, map[readinessv1alpha1.DaemonSetOnNode][]types.UID{}
	for i := range rules {
		rule := &rules[i]
		if rule.Spec.Suspend || rule.DeletionTimestamp != nil {
			continue
		}
		for _, required := range rule.Spec.Objects {
			switch {
			case required.Object != nil:
				objects[*required.Object] = append(objects[*required.Object], rule.UID)
			case required.DaemonSet != nil:
				daemonSets[*required.DaemonSet] = append(daemonSets[*required.DaemonSet], rule.UID)
			}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	replace(g.ctx, g.objects, objects, func(of readinessv1alpha1.ReadyObject) *objectGate { return newObjectGate(of, g.o, g.reader) })
	replace(g.ctx, g.daemonSets, daemonSets, func(of readinessv1alpha1.DaemonSetOnNode) *daemonSetGate {
		return newDaemonSetGate(of, g.o, g.reader)
	})
}

// gate is what watches for one requirement.
type gate interface {
	// serve starts the watches that have not been started, and says for which rules they are.
	serve(ctx context.Context, rules []types.UID)
	stop()
}

// replace stops, starts and keeps gates.
func replace[K comparable, G gate](ctx context.Context, gates map[K]G, required map[K][]types.UID, make func(K) G) {
	maps.DeleteFunc(gates, func(of K, g G) bool {
		gone := len(required[of]) == 0
		if gone {
			g.stop()
		}
		return gone
	})
	for of, rules := range required {
		g, known := gates[of]
		if !known {
			g = make(of)
			gates[of] = g
		}
		g.serve(ctx, rules)
	}
}

// Verdict says whether what is required is ready for a node, and why it is not. It does no I/O. ready is Unknown for
// what does not exist or cannot be read. It is empty for what nobody has looked at yet: since the watch of it has just
// begun, or is about to.
func (g *Gates) Verdict(node *corev1.Node, required readinessv1alpha1.ObjectRequirement) (ready corev1.ConditionStatus, message string) {
	v := g.verdict(node, required)
	return v.ready, v.message
}

func (g *Gates) verdict(node *corev1.Node, required readinessv1alpha1.ObjectRequirement) verdict {
	if required.Allocatable != nil {
		return allocatable(node, *required.Allocatable)
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	switch {
	case required.Object != nil:
		if o, known := g.objects[*required.Object]; known {
			return o.verdict(node)
		}
	case required.DaemonSet != nil:
		if d, known := g.daemonSets[*required.DaemonSet]; known {
			return d.verdict(node)
		}
	}
	return unread("it is not being watched")
}

// verdict is the answer for one requirement and one node.
type verdict struct {
	ready   corev1.ConditionStatus
	message string
}

// maxMessage bounds messages, in bytes; those of conditions can be of any length.
const maxMessage = 512

func unknown(format string, args ...any) verdict {
	return verdict{corev1.ConditionUnknown, fmt.Sprintf(format, args...)}
}

func unread(format string, args ...any) verdict {
	return verdict{message: fmt.Sprintf(format, args...)}
}

func no(format string, args ...any) verdict {
	return verdict{corev1.ConditionFalse, fmt.Sprintf(format, args...)}
}

var yes = verdict{ready: corev1.ConditionTrue}

// watched is what gates have in common: whom they serve, and whom a change concerns.
type watched struct {
	o Options

	mu     sync.RWMutex
	rules  []types.UID
	cancel context.CancelFunc // nil before the first serve
	news   news
}

// news is whom a change concerns.
type news struct {
	everyNode bool
	nodes     map[string]bool
	reworded  bool
}

func (n *news) node(name string) {
	if n.nodes == nil {
		n.nodes = map[string]bool{}
	}
	n.nodes[name] = true
}

// update changes what is guarded by mu, and then tells whom it concerns.
func (w *watched) update(change func()) {
	w.mu.Lock()
	w.news = news{}
	change()
	told, rules := w.news, w.rules
	w.mu.Unlock()
	switch {
	case told.everyNode:
		w.o.RulesChanged(slices.Clone(rules))
	case len(told.nodes) > 0:
		for node := range told.nodes {
			w.o.NodeChanged(node)
		}
	case told.reworded:
		w.o.Reworded()
	}
}

// begin remembers the rules, and starts run the first time.
func (w *watched) begin(ctx context.Context, rules []types.UID, run func(context.Context)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rules = rules
	if w.cancel == nil {
		ctx, w.cancel = context.WithCancel(ctx)
		go run(ctx)
	}
}

func (w *watched) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cancel()
}

// capped shortens what objects and the API server say of themselves.
func capped(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	const more = " …"
	return strings.ToValidUTF8(message[:maxMessage-len(more)], "") + more
}
