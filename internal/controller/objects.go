package controller

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fettle-dev/fettle/internal/gates"
	"github.com/fettle-dev/fettle/internal/objectstatus"
	"github.com/fettle-dev/fettle/internal/tolerations"
)

// watchObjects makes the rules' objects known to decisions, and looks at the nodes that changes of them concern.
func (s *setup) watchObjects(ctx context.Context, n *nodes) error {
	objects, err := gates.New(ctx, gates.Options{
		Config: s.mgr.GetConfig(), HTTPClient: s.mgr.GetHTTPClient(),
		Analyzer:   objectstatus.KStatus{AnnotationPrefixes: s.o.StatusHintPrefixes},
		Comparison: tolerations.Comparison(s.o.TolerationComparison),
		NodeChanged: func(node string) {
			n.enqueue(node)
			n.status.WakeAll()
		},
		RulesChanged: func(rules []types.UID) {
			n.enqueueSelected(ctx, rules)
			n.status.WakeAll()
		},
		Reworded: n.status.WakeAll,
		Log:      s.o.Log.WithName("objects"),
	})
	if err != nil {
		return err
	}
	n.memory.Objects = objects
	return nil
}

// enqueueSelected looks at the nodes that one of the rules selects. Rules that are not in force yet have nothing to be
// looked at: when they come into force, every node is.
func (n *nodes) enqueueSelected(ctx context.Context, uids []types.UID) {
	known := n.rules.Loaded()
	if known == nil {
		return
	}
	selects := func(node *corev1.Node) bool {
		return slices.ContainsFunc(uids, func(uid types.UID) bool {
			rule := known.Get(uid)
			return rule != nil && rule.Selects(node)
		})
	}
	var list corev1.NodeList
	if err := n.cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil { // the cache is being stopped
		return
	}
	for i := range list.Items {
		if selects(&list.Items[i]) {
			n.enqueue(list.Items[i].Name)
		}
	}
}
