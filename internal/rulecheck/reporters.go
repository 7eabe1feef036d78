package rulecheck

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/readiness"
	"github.com/fettle-dev/fettle/internal/taints"
	"github.com/fettle-dev/fettle/internal/tolerations"
)

// Reporters knows the DaemonSets of the cluster, and finds rules whose taints keep away the very pods that they wait for.
// It may be used concurrently.
type Reporters struct {
	comparison tolerations.Comparison
	changed    func()

	mu         sync.RWMutex
	daemonSets map[types.NamespacedName]daemonSet // guarded by mu
}

// NewReporters knows no DaemonSet yet. changed is called when a Check may find something else now.
func NewReporters(comparison tolerations.Comparison, changed func()) *Reporters {
	return &Reporters{comparison: comparison, changed: changed, daemonSets: map[types.NamespacedName]daemonSet{}}
}

// Follow is told of DaemonSets by an informer. It does not wait for it: until it is synced, and for ever where the
// controller may not read DaemonSets, nothing is found.
func (r *Reporters) Follow(informer interface {
	AddEventHandler(toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error)
}) error {
	_, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { r.set(obj) },
		UpdateFunc: func(_, obj any) { r.set(obj) },
		DeleteFunc: func(obj any) { r.forget(obj) },
	})
	return err
}

func (r *Reporters) set(obj any) {
	ds, ok := obj.(*appsv1.DaemonSet)
	if !ok {
		return
	}
	key, is := types.NamespacedName{Namespace: ds.Namespace, Name: ds.Name}, read(ds)
	r.mu.Lock()
	was, known := r.daemonSets[key]
	r.daemonSets[key] = is
	r.mu.Unlock()
	if !known || !reflect.DeepEqual(was, is) { // most updates are of its status
		r.changed()
	}
}

func (r *Reporters) forget(obj any) {
	if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	ds, ok := obj.(*appsv1.DaemonSet)
	if !ok {
		return
	}
	r.mu.Lock()
	delete(r.daemonSets, types.NamespacedName{Namespace: ds.Namespace, Name: ds.Name})
	r.mu.Unlock()
	r.changed()
}

// Check is a readiness.Check: it finds the DaemonSets whose pods a rule waits for and whose pods do not tolerate its taints.
func (r *Reporters) Check(rule *readinessv1alpha1.NodeReadinessRule) (readiness.Finding, bool) {
	compiled, _ := taints.Compile(rule) // a selector that cannot be parsed is found elsewhere
	r.mu.RLock()
	var repelled []string
	for _, d := range r.daemonSets {
		if says, ok := d.repelledBy(rule, compiled.Taints, r.comparison); ok {
			repelled = append(repelled, says)
		}
	}
	r.mu.RUnlock()
	if len(repelled) == 0 {
		return readiness.Finding{}, false
	}
	slices.SortFunc(repelled, cmp.Compare[string])
	const most = 4 // so that the message stays in its bounds
	more := ""
	if n := len(repelled) - most; n > 0 {
		repelled, more = repelled[:most], fmt.Sprintf("; and %d more", n)
	}
	return readiness.Finding{Reason: readiness.ReasonTaintNotTolerated, Message: strings.Join(repelled, "; ") + more}, true
}

// repelledBy says how the taints of a rule keep the pods away that the rule waits for, if they do.
func (d daemonSet) repelledBy(rule *readinessv1alpha1.NodeReadinessRule, held []taints.Taint, comparison tolerations.Comparison) (says string, ok bool) {
	reports := d.reporting(rule)
	if len(reports) == 0 && !d.requiredBy(rule) || d.elsewhere(rule.Spec.NodeSelector) {
		return "", false
	}
	taint, how := repels(held, d.tolerations, comparison)
	if how == "" {
		return "", false
	}
	what := "is required by the rule"
	if len(reports) > 0 {
		what = "reports " + strings.Join(reports[:min(len(reports), 3)], ", ")
	}
	return fmt.Sprintf("%s %s, and %s %s:%s on the nodes that are held", d, what, how, taint.Key, taint.Effect), true
}

// repels gives the taint that keeps pods off a node, or drives them away, and how.
func repels(held []taints.Taint, tolerated []corev1.Toleration, comparison tolerations.Comparison) (taint corev1.Taint, how string) {
	list := make([]corev1.Taint, 0, len(held))
	for _, t := range held {
		list = append(list, corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
	}
	if taint, unscheduled := tolerations.Unscheduled(tolerated, list, comparison); unscheduled {
		return taint, "its pods do not tolerate"
	}
	if stay := tolerations.Staying(tolerated, list, comparison); !stay.Forever {
		return stay.For, fmt.Sprintf("its pods tolerate for %s only", stay.After)
	}
	return corev1.Taint{}, ""
}
