package gates

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// reader lists and watches.
type reader struct {
	cfg       *rest.Config
	http      *http.Client
	discovery discovery.DiscoveryInterface
	// workloads reads pods and what makes them, in their compact form.
	workloads client.WithWatch
}

func newReader(cfg *rest.Config, httpClient *http.Client) (*reader, error) {
	r := &reader{cfg: cfg, http: httpClient}
	var err error
	if r.discovery, err = discovery.NewDiscoveryClientForConfigAndClient(cfg, httpClient); err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	mapper := apimeta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), apimeta.RESTScopeNamespace)
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("DaemonSet"), apimeta.RESTScopeNamespace)
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("ControllerRevision"), apimeta.RESTScopeNamespace)
	r.workloads, err = client.NewWithWatch(cfg, client.Options{HTTPClient: httpClient, Scheme: scheme, Mapper: mapper})
	return r, err
}

// kind is a kind as the cluster has it.
type kind struct {
	list       func() client.ObjectList
	client     client.WithWatch
	namespaced bool
	// status says that it has a subresource status.
	status bool
}

// kind looks a kind up in the cluster, which may learn of it later.
func (r *reader) kind(apiVersion, name string) (kind, error) {
	version, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return kind{}, fmt.Errorf("%w%w", errUnusable, err)
	}
	known, err := r.discovery.ServerResourcesForGroupVersion(apiVersion)
	if err != nil && !apierrors.IsNotFound(err) {
		return kind{}, fmt.Errorf("look for kind %s of %s: %w", name, apiVersion, err)
	}
	if known == nil {
		known = &metav1.APIResourceList{}
	}
	at := slices.IndexFunc(known.APIResources, func(r metav1.APIResource) bool { return r.Kind == name && !isSubresource(r) })
	if at < 0 {
		return kind{}, fmt.Errorf("%wthe cluster does not know kind %s of %s", errUnusable, name, apiVersion)
	}
	resource := known.APIResources[at]
	if !slices.Contains(resource.Verbs, "list") || !slices.Contains(resource.Verbs, "watch") {
		return kind{}, fmt.Errorf("%wkind %s of %s cannot be listed and watched", errUnusable, name, apiVersion)
	}
	k := kind{
		namespaced: resource.Namespaced,
		status: slices.ContainsFunc(known.APIResources, func(r metav1.APIResource) bool {
			return r.Name == resource.Name+"/status"
		}),
		list: func() client.ObjectList {
			list := &unstructured.UnstructuredList{}
			list.SetAPIVersion(apiVersion)
			list.SetKind(name + "List")
			return list
		},
	}
	mapper := apimeta.NewDefaultRESTMapper(nil)
	scope := apimeta.RESTScopeRoot
	if k.namespaced {
		scope = apimeta.RESTScopeNamespace
	}
	mapper.AddSpecific(version.WithKind(name), version.WithResource(resource.Name), version.WithResource(resource.SingularName), scope)
	k.client, err = client.NewWithWatch(r.cfg, client.Options{HTTPClient: r.http, Scheme: runtime.NewScheme(), Mapper: mapper})
	if err != nil {
		return kind{}, fmt.Errorf("make a client for kind %s of %s: %w", name, apiVersion, err)
	}
	return k, nil
}

func isSubresource(r metav1.APIResource) bool { return slices.Contains([]byte(r.Name), '/') }

// listWatch reads a selection of objects.
func listWatch(c client.WithWatch, list func() client.ObjectList, selection client.ListOptions) cache.ListerWatcher {
	with := func(o metav1.ListOptions) *client.ListOptions {
		s := selection
		s.Raw = &o
		return &s
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			l := list()
			return l, c.List(ctx, l, with(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.Watch(ctx, list(), with(o))
		},
	}
}
