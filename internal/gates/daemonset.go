package gates

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/fettle-dev/fettle/internal/tolerations"
)

// daemonSet is what is kept of a DaemonSet.
type daemonSet struct {
	uid                  types.UID
	generation, observed int64
	deleting, onDelete   bool
	selector             string
	// placement says where its pods may run. It belongs to the generation.
	placement corev1.PodSpec
}

func keepDaemonSet(obj metav1.Object) (daemonSet, bool) {
	d, ok := obj.(*appsv1.DaemonSet)
	if !ok {
		return daemonSet{}, false
	}
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil { // the API server refuses such
		return daemonSet{}, false
	}
	template := d.Spec.Template.Spec
	return daemonSet{
		uid:        d.UID,
		generation: d.Generation,
		observed:   d.Status.ObservedGeneration,
		deleting:   d.DeletionTimestamp != nil,
		onDelete:   d.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType,
		selector:   selector.String(),
		placement:  corev1.PodSpec{NodeSelector: template.NodeSelector, Affinity: template.Affinity, Tolerations: template.Tolerations},
	}, true
}

func sameDaemonSet(a, b daemonSet) bool {
	return a.uid == b.uid && a.generation == b.generation && a.observed == b.observed && a.deleting == b.deleting
}

// revision is what is kept of a ControllerRevision. The newest is that with the greatest number: when a template is put
// back to what it was, its revision gets a new number and keeps its hash.
type revision struct {
	number int64
	hash   string
}

// revisionsOf keeps those of one DaemonSet.
func revisionsOf(owner types.UID) func(metav1.Object) (revision, bool) {
	return func(obj metav1.Object) (revision, bool) {
		r, ok := obj.(*appsv1.ControllerRevision)
		if !ok || !controlledBy(r, owner) {
			return revision{}, false
		}
		return revision{number: r.Revision, hash: r.Labels[appsv1.ControllerRevisionHashLabelKey]}, true
	}
}

func newest(revisions map[string]revision) revision {
	var last revision
	for _, r := range revisions {
		if r.number > last.number {
			last = r
		}
	}
	return last
}

// pod is what is kept of a pod of a DaemonSet.
type pod struct {
	name, node, hash string
	ready, deleting  bool
}

// podsOf keeps those of one DaemonSet that are on a node.
func podsOf(owner types.UID) func(metav1.Object) (pod, bool) {
	return func(obj metav1.Object) (pod, bool) {
		p, ok := obj.(*corev1.Pod)
		if !ok || p.Spec.NodeName == "" || !controlledBy(p, owner) {
			return pod{}, false
		}
		return pod{
			name: p.Name,
			node: p.Spec.NodeName,
			hash: p.Labels[appsv1.ControllerRevisionHashLabelKey],
			ready: slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			}),
			deleting: p.DeletionTimestamp != nil,
		}, true
	}
}

func controlledBy(obj metav1.Object, owner types.UID) bool {
	c := metav1.GetControllerOfNoCopy(obj)
	return c != nil && c.UID == owner
}

// judge says whether a DaemonSet does its work on a node: a pod of its newest revision is ready there. pods are those on
// the node.
//
// A node that the DaemonSet leaves out is not ready, too: the label that lets it in may be one that comes late, and a rule
// that selects more nodes than the DaemonSet is seen at once, while one that released them would not be.
func judge(title string, d daemonSet, current revision, pods []pod, node *corev1.Node, comparison tolerations.Comparison) verdict {
	switch {
	case d.deleting:
		return no("%s is being deleted", title)
	case d.observed != d.generation:
		return no("%s has changed, and its controller has not looked at that yet", title)
	case current.hash == "":
		return no("%s has no revision yet", title)
	case len(pods) == 0:
		return no("%s has no pod on the node: %s", title, absent(d, node, comparison))
	}
	var old, notReady pod
	for _, p := range pods {
		switch {
		case p.hash != current.hash:
			old = p
		case p.ready && !p.deleting:
			return yes
		default:
			notReady = p
		}
	}
	switch {
	case notReady.deleting:
		return no("%s: pod %s is being deleted", title, notReady.name)
	case notReady.name != "":
		return no("%s: pod %s is not ready", title, notReady.name)
	case d.onDelete:
		return no("%s: pod %s is of an older revision, and with updateStrategy OnDelete stays so until it is deleted", title, old.name)
	}
	return no("%s: pod %s is of an older revision", title, old.name)
}

// absent says why a node may have no pod of a DaemonSet.
func absent(d daemonSet, node *corev1.Node, comparison tolerations.Comparison) string {
	match, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: d.placement}).Match(node)
	if err != nil || !match {
		return "its nodeSelector or node affinity leaves the node out"
	}
	// The DaemonSet controller makes pods tolerate those of Kubernetes itself.
	taints := slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t corev1.Taint) bool {
		return strings.HasPrefix(t.Key, "node.kubernetes.io/")
	})
	if taint, blocked := tolerations.Unscheduled(d.placement.Tolerations, taints, comparison); blocked {
		return "its pods do not tolerate taint " + taint.ToString()
	}
	return "it has not been made or scheduled yet"
}
