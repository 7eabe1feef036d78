package gates

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/objectstatus"
)

// objectGate watches one object, or one for each node. It keeps verdicts alone, not the objects.
type objectGate struct {
	watched
	of     readinessv1alpha1.ReadyObject
	name   nameTemplate
	hints  objectstatus.Hints
	reader *reader
	feed   *feed[verdict]
	// hopeless says that the hints are wrong: there is nothing to wait for.
	hopeless bool
	// analyzer is made anew whenever the kind has been looked up.
	analyzer objectstatus.Gate
}

func newObjectGate(of readinessv1alpha1.ReadyObject, o Options, r *reader) *objectGate {
	g := &objectGate{of: of, name: nameTemplate(of.Name), reader: r}
	g.o = o
	g.feed = &feed[verdict]{
		find: g.find, keep: g.keep, changed: g.changed, gate: &g.watched,
		same: func(a, b verdict) bool { return a == b },
		log:  o.Log.WithValues("kind", of.Kind, "namespace", of.Namespace, "name", of.Name),
	}
	var err error
	if g.hints, err = objectstatus.ParseHints(of.StatusHint); err != nil {
		g.hopeless, g.feed.fault = true, "statusHint: "+err.Error()
	}
	return g
}

func (g *objectGate) serve(ctx context.Context, rules []types.UID) {
	g.begin(ctx, rules, func(ctx context.Context) {
		if !g.hopeless {
			g.feed.run(ctx)
		}
	})
}

func (g *objectGate) find(context.Context) (cache.ListerWatcher, error) {
	k, err := g.reader.kind(g.of.APIVersion, g.of.Kind)
	switch {
	case err != nil:
		return nil, err
	case k.namespaced && g.of.Namespace == "":
		return nil, fmt.Errorf("%wobjects of kind %s are in namespaces, and the rule gives none", errUnusable, g.of.Kind)
	case !k.namespaced && g.of.Namespace != "":
		return nil, fmt.Errorf("%wobjects of kind %s are in no namespace, and the rule gives one", errUnusable, g.of.Kind)
	}
	g.analyzer = objectstatus.Gate{Analyzer: g.o.Analyzer, StatusSubresource: k.status}
	selection := client.ListOptions{Namespace: g.of.Namespace}
	if !g.name.perNode() {
		selection.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, g.of.Name)
	}
	return listWatch(k.client, k.list, selection), nil
}

// keep judges an object, unless it is none that is asked for.
func (g *objectGate) keep(obj metav1.Object) (verdict, bool) {
	if _, ok := g.name.node(obj.GetName()); g.name.perNode() && !ok {
		return verdict{}, false
	}
	object, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return unknown("%s cannot be read", g.title(obj.GetName())), true
	}
	result := g.analyzer.Analyze(object, g.hints)
	message := capped(fmt.Sprintf("%s: %s", g.title(obj.GetName()), result.Message))
	switch result.Status {
	case objectstatus.Current:
		return yes, true
	case objectstatus.Unknown:
		return verdict{corev1.ConditionUnknown, message}, true
	}
	return verdict{corev1.ConditionFalse, message}, true
}

func (g *objectGate) changed(name string, was, is *verdict) {
	switch node, ofOne := g.name.node(name); {
	case was != nil && is != nil && was.ready == is.ready:
		g.news.reworded = true
	case ofOne:
		g.news.node(node)
	default:
		g.news.everyNode = true
	}
}

func (g *objectGate) verdict(node *corev1.Node) verdict {
	g.mu.RLock()
	defer g.mu.RUnlock()
	name := g.name.of(node.Name)
	switch v, known := g.feed.rows[name]; {
	case g.feed.fault != "":
		return unknown("%s: %s", g.title(name), capped(g.feed.fault))
	case !g.feed.read:
		return unread("%s has not been read yet", g.title(name))
	case !known:
		return unknown("%s does not exist", g.title(name))
	default:
		return v
	}
}

func (g *objectGate) title(name string) string { return title(g.of.Kind, g.of.Namespace, name) }

func title(kind, namespace, name string) string {
	if namespace == "" {
		return kind + " " + name
	}
	return kind + " " + namespace + "/" + name
}
