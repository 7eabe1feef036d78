package gates

import (
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
)

// daemonSetGate watches one DaemonSet, and by its selector, in its namespace, its revisions and pods.
type daemonSetGate struct {
	watched
	of     readinessv1alpha1.DaemonSetOnNode
	title  string
	reader *reader
	ctx    context.Context // of the watches; set before they begin
	set    *feed[daemonSet]

	// made is what the DaemonSet made, or nil while there is none. Guarded by mu.
	made *made
}

// made is what one DaemonSet made. Another of the same name, or with another selector, has another.
type made struct {
	cancel    context.CancelFunc
	revisions *feed[revision]
	pods      *feed[pod]
	byNode    map[string][]pod
	current   revision
}

func newDaemonSetGate(of readinessv1alpha1.DaemonSetOnNode, o Options, r *reader) *daemonSetGate {
	g := &daemonSetGate{of: of, title: title("DaemonSet", of.Namespace, of.Name), reader: r}
	g.o = o
	g.set = &feed[daemonSet]{
		find: g.find(func() client.ObjectList { return &appsv1.DaemonSetList{} },
			client.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, of.Name)}),
		keep: keepDaemonSet, same: sameDaemonSet, changed: g.setChanged, gate: &g.watched, log: o.Log,
	}
	return g
}

func (g *daemonSetGate) serve(ctx context.Context, rules []types.UID) {
	g.begin(ctx, rules, func(ctx context.Context) {
		g.ctx = ctx
		g.set.run(ctx)
	})
}

// find selects within the DaemonSet's namespace.
func (g *daemonSetGate) find(list func() client.ObjectList, selection client.ListOptions) func(context.Context) (cache.ListerWatcher, error) {
	selection.Namespace = g.of.Namespace
	return func(context.Context) (cache.ListerWatcher, error) {
		return listWatch(g.reader.workloads, list, selection), nil
	}
}

func (g *daemonSetGate) setChanged(_ string, was, is *daemonSet) {
	g.news.everyNode = true
	if is != nil && was != nil && is.uid == was.uid && is.selector == was.selector {
		return
	}
	if g.made != nil {
		g.made.cancel()
		g.made = nil
	}
	if is != nil {
		g.made = g.follow(*is)
	}
}

// follow begins to watch what a DaemonSet makes.
func (g *daemonSetGate) follow(d daemonSet) *made {
	selector, err := labels.Parse(d.selector)
	if err != nil { // it was written by labels itself
		panic(err)
	}
	ctx, cancel := context.WithCancel(g.ctx)
	m := g.newMade(d.uid, selector)
	m.cancel = cancel
	go m.revisions.run(ctx)
	go m.pods.run(ctx)
	return m
}

func (g *daemonSetGate) newMade(by types.UID, selector labels.Selector) *made {
	m := &made{byNode: map[string][]pod{}}
	m.revisions = &feed[revision]{
		find: g.find(func() client.ObjectList { return &appsv1.ControllerRevisionList{} }, client.ListOptions{LabelSelector: selector}),
		keep: revisionsOf(by), same: func(a, b revision) bool { return a == b }, gate: &g.watched, log: g.o.Log,
		changed: func(string, *revision, *revision) {
			if is := newest(m.revisions.rows); is.hash != m.current.hash {
				m.current, g.news.everyNode = is, true
			}
		},
	}
	m.pods = &feed[pod]{
		find: g.find(func() client.ObjectList { return &corev1.PodList{} }, client.ListOptions{LabelSelector: selector}),
		keep: podsOf(by), same: func(a, b pod) bool { return a == b }, gate: &g.watched, log: g.o.Log,
		changed: func(name string, was, is *pod) {
			if was != nil {
				m.byNode[was.node] = slices.DeleteFunc(m.byNode[was.node], func(p pod) bool { return p.name == name })
				if len(m.byNode[was.node]) == 0 {
					delete(m.byNode, was.node)
				}
				g.news.node(was.node)
			}
			if is != nil {
				m.byNode[is.node] = append(m.byNode[is.node], *is)
				g.news.node(is.node)
			}
		},
	}
	return m
}

func (g *daemonSetGate) verdict(node *corev1.Node) verdict {
	g.mu.RLock()
	defer g.mu.RUnlock()
	d, exists := g.set.rows[g.of.Name]
	states := [3]feedState{g.set.feedState}
	used := states[:1]
	if g.made != nil {
		used = append(used, g.made.revisions.feedState, g.made.pods.feedState)
	}
	for _, s := range used {
		switch {
		case s.fault != "":
			return unknown("%s: %s", g.title, capped(s.fault))
		case !s.read:
			return unread("%s has not been read yet", g.title)
		}
	}
	if !exists {
		return unknown("%s does not exist", g.title)
	}
	return judge(g.title, d, g.made.current, g.made.byNode[node.Name], node, g.o.Comparison)
}
