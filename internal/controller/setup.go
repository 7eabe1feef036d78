package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/controller/metrics"
	"github.com/fettle-dev/fettle/internal/events"
	"github.com/fettle-dev/fettle/internal/fleet"
	"github.com/fettle-dev/fettle/internal/liveness/watch"
	"github.com/fettle-dev/fettle/internal/nodewriter"
	"github.com/fettle-dev/fettle/internal/readiness"
	"github.com/fettle-dev/fettle/internal/webhook"
)

const (
	// lookPause is the time between looks for what the cluster has to have before the controller can begin.
	lookPause = 2 * time.Second
	// complainPause is the least time between two complaints about the same thing.
	complainPause = 30 * time.Second
)

// setup waits until the cluster has what the controller needs, then starts the parts. It runs on every replica, so that
// a replica that becomes the leader has warm caches.
type setup struct {
	mgr     manager.Manager
	metrics *metrics.Metrics
	o       Options

	informers atomic.Pointer[[]cache.Informer]
	webhook   atomic.Pointer[webhook.Webhook] // nil unless it is served
}

// NeedLeaderElection makes replicas that do not lead prepare too.
func (s *setup) NeedLeaderElection() bool { return false }

// Start prepares, and returns when the parts are under the care of the manager.
func (s *setup) Start(ctx context.Context) error {
	if !s.await(ctx, "the namespaces", s.ensureNamespaces) || !s.await(ctx, "the custom resources", s.findKinds) {
		return nil
	}
	if err := s.addParts(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("start the parts of the controller: %w", err)
	}
	return nil
}

// synced answers readiness probes.
func (s *setup) synced(ctx context.Context) error {
	informers := s.informers.Load()
	if informers == nil {
		return errors.New("the controller waits for the API server, its namespaces or its custom resources; its log says what is missing")
	}
	for _, i := range *informers {
		if !i.HasSynced() {
			return errors.New("caches are not synced yet; the log says so if an object cannot be decoded")
		}
	}
	if w := s.webhook.Load(); w != nil {
		return w.Ready(ctx)
	}
	return nil
}

// await looks again until there is no fault, and complains now and then. It is false when the context ended first.
func (s *setup) await(ctx context.Context, what string, look func(context.Context) error) bool {
	var complained time.Time
	for {
		err := look(ctx)
		if err == nil {
			return true
		}
		if ctx.Err() == nil && time.Since(complained) >= complainPause {
			s.o.Log.Error(err, "cannot begin without "+what+"; will keep looking")
			complained = time.Now()
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(lookPause):
		}
	}
}

// ensureNamespaces makes the namespaces of the leases where it may. In a cluster it may not: they come from
// deploy/controller.
func (s *setup) ensureNamespaces(ctx context.Context) error {
	names := []string{fettlev1alpha1.LeaseNamespace}
	if s.o.LeaderElect {
		names = append(names, s.o.LeaderElectionNamespace)
	}
	for _, name := range names {
		namespace := &corev1.Namespace{}
		err := s.mgr.GetAPIReader().Get(ctx, client.ObjectKey{Name: name}, namespace)
		if apierrors.IsNotFound(err) {
			namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if err = s.mgr.GetClient().Create(ctx, namespace); apierrors.IsAlreadyExists(err) {
				err = nil
			}
			if apierrors.IsForbidden(err) {
				return fmt.Errorf("namespace %s is missing: apply deploy/controller: %w", name, err)
			}
		}
		if err != nil {
			return fmt.Errorf("look for namespace %s: %w", name, err)
		}
	}
	return nil
}

// findKinds looks for the custom resources.
func (s *setup) findKinds(context.Context) error {
	known, err := discovery.NewDiscoveryClientForConfigAndClient(s.mgr.GetConfig(), s.mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	for version, resources := range map[schema.GroupVersion][]string{
		readinessv1alpha1.GroupVersion: {"nodereadinessrules"},
		fettlev1alpha1.GroupVersion:    {"hosts", "fleetpolicies"},
	} {
		list, err := known.ServerResourcesForGroupVersion(version.String())
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("look for %s of %s: %w", strings.Join(resources, ", "), version, err)
		}
		for _, resource := range resources {
			if list == nil || !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource }) {
				return fmt.Errorf("the cluster does not know %s of %s: apply deploy/crds", resource, version)
			}
		}
	}
	return nil
}

// addParts starts the caches and gives the parts to the manager, which starts them once this replica leads.
func (s *setup) addParts(ctx context.Context) error {
	caches, c := s.mgr.GetCache(), s.mgr.GetClient()
	var informers []cache.Informer
	for _, obj := range []client.Object{&corev1.Node{}, &coordinationv1.Lease{}, &fettlev1alpha1.Host{}, &readinessv1alpha1.NodeReadinessRule{}, &fettlev1alpha1.FleetPolicy{}} {
		informer, err := caches.GetInformer(ctx, obj, cache.BlockUntilSynced(false))
		if err != nil {
			return err
		}
		informers = append(informers, informer)
	}
	if err := s.serveWebhook(ctx); err != nil {
		return err
	}
	s.informers.Store(&informers)

	writer := nodewriter.New(c, s.mgr.GetAPIReader())
	memory := &readiness.Memory{}
	rules := readiness.NewRules(caches, memory)
	standings := readiness.NewStandings(rules, memory)
	instance, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("find the name of this machine: %w", err)
	}
	queue := events.NewQueue(c, instance, writer.Busy, s.o.Log.WithName("events"))
	status := readiness.NewStatus(caches, c, standings, queue, s.o.Log.WithName("status"))
	if err := s.checkRules(ctx, status); err != nil {
		return err
	}
	n := &nodes{
		cache: caches, client: c, live: s.mgr.GetAPIReader(), writer: writer, rules: rules, memory: memory, standings: standings,
		status: status, events: queue, metrics: s.metrics, grace: s.o.HostLifecycleGracePeriod, log: s.o.Log.WithName("nodes"),
	}
	if err := s.watchObjects(ctx, n); err != nil {
		return err
	}
	n.agents = watch.New(watch.Options{
		Leases: informers[1], Hosts: informers[2], Live: s.mgr.GetAPIReader(), Client: c, Limits: s.o.limits(),
		Policy: fleet.Policy{Limits: s.o.Fleet}, Changed: n.enqueue, Log: s.o.Log.WithName("liveness"),
	})
	memory.Blind = n.agents.Blind
	n.show(ctx, s.mgr.Elected())
	if err := n.start(s.mgr, s.o.Concurrency); err != nil {
		return err
	}
	policy := &fleetPolicy{cache: caches, client: c, judge: n.agents, events: queue, defaults: s.o.Fleet, log: s.o.Log.WithName("fleet")}
	for _, part := range []manager.Runnable{n.agents, policy, status, queue} {
		if err := s.mgr.Add(part); err != nil {
			return err
		}
	}
	return nil
}
