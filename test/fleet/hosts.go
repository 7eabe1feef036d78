package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/kubeclient"
)

// hostClient is a client for Hosts, nil where the cluster does not have that kind.
func hostClient(config *rest.Config, clients *kubernetes.Clientset) (*rest.RESTClient, error) {
	version := fettlev1alpha1.GroupVersion
	if _, err := clients.Discovery().ServerResourcesForGroupVersion(version.String()); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("ask whether the cluster has Hosts: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := fettlev1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("make a client for Hosts: %w", err)
	}
	metav1.AddToGroupVersion(scheme, version)
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/apis", &version
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for Hosts: %w", err)
	}
	return client, nil
}

// watchHosts tells every agent of its Host until ctx ends. Real agents watch one Host each.
func (f *Fleet) watchHosts(ctx context.Context) {
	meet := func(object any, host *fettlev1alpha1.Host) {
		if deleted, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = deleted.Obj
		}
		seen, ok := object.(*fettlev1alpha1.Host)
		if !ok {
			return
		}
		if a := f.byName[seen.Name]; a != nil {
			f.running.Go(func() { _ = a.meetHost(ctx, host) }) // counted where it fails
		}
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(f.hosts, "hosts", metav1.NamespaceAll, fields.Everything()),
		ObjectType:    &fettlev1alpha1.Host{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { meet(object, object.(*fettlev1alpha1.Host)) },
			UpdateFunc: func(_, object any) { meet(object, object.(*fettlev1alpha1.Host)) },
			DeleteFunc: func(object any) { meet(object, nil) },
		},
	})
	informer.RunWithContext(ctx)
}

func (a *agent) applyHost(ctx context.Context) error {
	body, err := json.Marshal(map[string]any{
		"apiVersion": fettlev1alpha1.GroupVersion.String(), "kind": "Host",
		"metadata": map[string]any{"name": a.name, "uid": a.host.UID},
		"status":   a.hostStatus(),
	})
	if err != nil {
		return fmt.Errorf("encode the status of host %s: %w", a.name, err)
	}
	return a.fleet.record.measure(ctx, "host", func() error {
		err := a.fleet.hosts.Patch(types.ApplyPatchType).Resource("hosts").Name(a.name).SubResource("status").
			Param("fieldManager", kubeclient.FieldManager).Param("force", "true").Body(body).Do(ctx).Error()
		if err != nil {
			return fmt.Errorf("apply the status of host %s: %w", a.name, err)
		}
		return nil
	})
}

// hostStatus gives one check to each condition.
func (a *agent) hostStatus() fettlev1alpha1.HostStatus {
	status := fettlev1alpha1.HostStatus{
		Conditions: []metav1.Condition{{
			Type: fettlev1alpha1.HostReady, Status: metav1.ConditionTrue, Reason: fettlev1alpha1.ReasonHeartbeatReceived, LastTransitionTime: seconds(a.started),
		}},
		Agent:  &fettlev1alpha1.HostAgent{Version: "simulated", ID: a.id, Mode: "DaemonSet", BootID: "simulated", StartedAt: seconds(a.started)},
		Health: &fettlev1alpha1.HostHealth{Status: "Healthy", Since: seconds(a.started)},
	}
	health := status.Health
	for _, c := range a.conditions {
		status.ConditionTypes = append(status.ConditionTypes, c.Type)
		if c.Status == corev1.ConditionTrue {
			health.Counts.OK++
			continue
		}
		check := fettlev1alpha1.HostCheck{Check: "simulated", Status: "fatal", Reason: c.Reason, Message: c.Message, Since: c.since}
		if c.Status == corev1.ConditionUnknown {
			check.Status = "unknown"
			health.Counts.Unknown++
		} else {
			health.Counts.Fatal++
		}
		health.Checks = append(health.Checks, check)
		health.Status, health.Reason, health.Since = "Unhealthy", c.Reason, c.since
	}
	return status
}

func seconds(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }
