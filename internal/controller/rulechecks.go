package controller

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/fettle-dev/fettle/internal/readiness"
	"github.com/fettle-dev/fettle/internal/rulecheck"
	"github.com/fettle-dev/fettle/internal/tolerations"
)

// checkRules lets the status of rules say what internal/rulecheck finds. Nothing waits for the DaemonSets to be known: a
// controller that may not read them does everything else.
func (s *setup) checkRules(ctx context.Context, status *readiness.Status) error {
	daemonSets, err := s.mgr.GetCache().GetInformer(ctx, &appsv1.DaemonSet{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	reporters := rulecheck.NewReporters(tolerations.Comparison(s.o.TolerationComparison), status.WakeAll)
	status.Checks = append(status.Checks, reporters.Check, rulecheck.Autoscalers)
	return reporters.Follow(daemonSets)
}
