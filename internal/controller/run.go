package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/controller/metrics"
	"github.com/fettle-dev/fettle/internal/hosts"
	"github.com/fettle-dev/fettle/internal/nodewriter"
	"github.com/fettle-dev/fettle/internal/readiness"
	"github.com/fettle-dev/fettle/internal/rulecheck"
	"github.com/fettle-dev/fettle/internal/webhook"
)

// forever is long enough for a cache to wait for an API server that is away.
const forever = 10 * 365 * 24 * time.Hour

// Run runs a controller until the context ends, or until it cannot go on, e.g. because it lost the leader lease.
func Run(ctx context.Context, cfg *rest.Config, o Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	m := metrics.New()
	if err := o.Metrics.Register(m); err != nil {
		return fmt.Errorf("set up the metrics: %w", err)
	}
	defer o.Metrics.Unregister(m)
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(m.Transport)
	mgr, err := newManager(cfg, o)
	if err != nil {
		return fmt.Errorf("set up the controller: %w", err)
	}
	s := &setup{mgr: mgr, metrics: m, o: o}
	if err := mgr.Add(s); err != nil {
		return fmt.Errorf("set up the controller: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("set up the controller: %w", err)
	}
	if err := mgr.AddReadyzCheck("caches", func(r *http.Request) error { return s.synced(r.Context()) }); err != nil {
		return fmt.Errorf("set up the controller: %w", err)
	}
	err = mgr.Start(ctx)
	switch {
	case err == nil || errors.Is(err, context.Canceled):
		return nil
	case strings.Contains(err.Error(), "leader election lost"): // controller-runtime has no other way to tell
		return errors.New("the leader lease was lost, since the API server was out of reach or another replica took it; a restart stands for it again")
	}
	return fmt.Errorf("run the controller: %w", err)
}

func newManager(cfg *rest.Config, o Options) (manager.Manager, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = UserAgent
	cfg.QPS, cfg.Burst = o.QPS, int(2*o.QPS)
	live, err := client.New(cfg, client.Options{Scheme: scheme, Mapper: kinds()})
	if err != nil {
		return nil, err
	}
	return manager.New(cfg, manager.Options{
		Scheme:                        scheme,
		MapperProvider:                func(*rest.Config, *http.Client) (apimeta.RESTMapper, error) { return kinds(), nil },
		Logger:                        o.Log,
		Cache:                         cacheOptions(undecodable{api: live, log: o.Log.WithName("cache")}.watchFailed),
		LeaderElection:                o.LeaderElect,
		LeaderElectionID:              LeaderLease,
		LeaderElectionNamespace:       o.LeaderElectionNamespace,
		LeaderElectionReleaseOnCancel: true, // Run's caller exits when Run returns
		LeaseDuration:                 &o.LeaderLeaseDuration,
		RenewDeadline:                 &o.LeaderRenewDeadline,
		RetryPeriod:                   &o.LeaderRetryPeriod,
		Metrics:                       metricsserver.Options{BindAddress: o.MetricsBindAddress},
		HealthProbeBindAddress:        o.HealthProbeBindAddress,
		Controller:                    config.Controller{CacheSyncTimeout: forever, SkipNameValidation: new(true)},
	})
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		admissionregistrationv1.AddToScheme, appsv1.AddToScheme, corev1.AddToScheme, coordinationv1.AddToScheme, eventsv1.AddToScheme, fettlev1alpha1.AddToScheme, readinessv1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}

// kinds maps the few kinds that the controller uses to their resources, so that it can begin while the API server is away
// or does not know them yet.
func kinds() apimeta.RESTMapper {
	mapper := apimeta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), apimeta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), apimeta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Secret"), apimeta.RESTScopeNamespace)
	mapper.Add(admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration"), apimeta.RESTScopeRoot)
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("DaemonSet"), apimeta.RESTScopeNamespace)
	mapper.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), apimeta.RESTScopeNamespace)
	mapper.Add(eventsv1.SchemeGroupVersion.WithKind("Event"), apimeta.RESTScopeNamespace)
	mapper.Add(fettlev1alpha1.GroupVersion.WithKind("Host"), apimeta.RESTScopeRoot)
	mapper.Add(fettlev1alpha1.GroupVersion.WithKind("FleetPolicy"), apimeta.RESTScopeRoot)
	mapper.Add(readinessv1alpha1.GroupVersion.WithKind("NodeReadinessRule"), apimeta.RESTScopeRoot)
	return mapper
}

// cacheOptions keep of every object what the controller reads, and share it instead of copying: nobody may change what
// comes from the cache.
func cacheOptions(watchFailed toolscache.WatchErrorHandlerWithContext) cache.Options {
	byObject := map[client.Object]cache.ByObject{
		&corev1.Node{}:                         {Transform: nodewriter.Trim},
		&appsv1.DaemonSet{}:                    {Transform: rulecheck.Trim},
		&readinessv1alpha1.NodeReadinessRule{}: {Transform: readiness.Trim},
		&fettlev1alpha1.Host{}:                 {Transform: hosts.Trim},
		&coordinationv1.Lease{}:                {Namespaces: map[string]cache.Config{fettlev1alpha1.LeaseNamespace: {}}},
	}
	maps.Copy(byObject, webhook.Cached(Namespace))
	return cache.Options{
		DefaultTransform:             cache.TransformStripManagedFields(),
		DefaultUnsafeDisableDeepCopy: new(true),
		DefaultWatchErrorHandler:     watchFailed,
		ByObject:                     byObject,
	}
}
