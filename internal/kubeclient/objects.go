package kubeclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
)

// FieldManager owns the agent's fields in server-side apply. Renaming it leaves the fields of old agents behind.
const FieldManager = "fettle-nodeagent"

// IsAnotherObject reports whether an apply was refused because the object of that name is gone, or is not the one whose
// UID the body carries. The API server answers the latter as an attempt to change the UID.
func IsAnotherObject(err error) bool {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return true
	}
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Field == "metadata.uid" {
			return true
		}
	}
	return false
}

// IsOutdated reports whether a write was refused because the object is not as it was read: its resourceVersion moved, or
// a test of a JSON patch failed, which is answered with 422 like an object that is invalid.
func IsOutdated(err error) bool { return apierrors.IsConflict(err) || apierrors.IsInvalid(err) }

// ApplyOptions say how a body is applied.
type ApplyOptions struct {
	// DryRun asks the API server to do everything but store the result.
	DryRun bool
}

// ApplyHostStatus applies body to the status of a Host, by force, and returns the resourceVersion of the Host as stored.
func (c *Client) ApplyHostStatus(ctx context.Context, name string, body []byte) (resourceVersion string, err error) {
	var stored metav1.PartialObjectMetadata
	if err := c.applied(ctx, c.fettle, "hosts", name, body, ApplyOptions{}, func(r rest.Result) error {
		raw, err := r.Raw()
		if err != nil {
			return err
		}
		return json.Unmarshal(raw, &stored)
	}); err != nil {
		return "", fmt.Errorf("apply status to host %s: %w", name, err)
	}
	return stored.ResourceVersion, nil
}

func (c *Client) apply(ctx context.Context, group rest.Interface, resource, name string, body []byte, o ApplyOptions) error {
	return c.applied(ctx, group, resource, name, body, o, rest.Result.Error)
}

func (c *Client) applied(ctx context.Context, group rest.Interface, resource, name string, body []byte, o ApplyOptions, take func(rest.Result) error) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	request := once(group.Patch(types.ApplyPatchType)).Resource(resource).Name(name).SubResource("status").
		Param("fieldManager", FieldManager).Param("force", "true").Body(body)
	if o.DryRun {
		request = request.Param("dryRun", metav1.DryRunAll)
	}
	return take(request.Do(ctx))
}

// Lease reads a Lease.
func (c *Client) Lease(ctx context.Context, namespace, name string) (*coordinationv1.Lease, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	var lease coordinationv1.Lease
	if err := once(c.coordination.Get()).Namespace(namespace).Resource("leases").Name(name).Do(ctx).Into(&lease); err != nil {
		return nil, fmt.Errorf("get lease %s/%s: %w", namespace, name, err)
	}
	return &lease, nil
}

// CreateLease creates a Lease and returns it as stored.
func (c *Client) CreateLease(ctx context.Context, lease *coordinationv1.Lease, o ApplyOptions) (*coordinationv1.Lease, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	request := once(c.coordination.Post()).Namespace(lease.Namespace).Resource("leases").Body(lease)
	if o.DryRun {
		request = request.Param("dryRun", metav1.DryRunAll)
	}
	var stored coordinationv1.Lease
	if err := request.Do(ctx).Into(&stored); err != nil {
		return nil, fmt.Errorf("create lease %s/%s: %w", lease.Namespace, lease.Name, err)
	}
	return &stored, nil
}

// UpdateLease replaces a Lease, if it is still at the resourceVersion given, and returns it as stored.
func (c *Client) UpdateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	var stored coordinationv1.Lease
	err := once(c.coordination.Put()).Namespace(lease.Namespace).Resource("leases").Name(lease.Name).Body(lease).Do(ctx).Into(&stored)
	if err != nil {
		return nil, fmt.Errorf("update lease %s/%s: %w", lease.Namespace, lease.Name, err)
	}
	return &stored, nil
}

// DeleteLease deletes a Lease, if it is still the one given, at the resourceVersion given.
func (c *Client) DeleteLease(ctx context.Context, lease *coordinationv1.Lease) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	unchanged := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion}}
	err := once(c.coordination.Delete()).Namespace(lease.Namespace).Resource("leases").Name(lease.Name).Body(&unchanged).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("delete lease %s/%s: %w", lease.Namespace, lease.Name, err)
	}
	return nil
}

// ClearHostStatus empties the status of the Host at the resourceVersion given.
func (c *Client) ClearHostStatus(ctx context.Context, name, resourceVersion string) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]string{"resourceVersion": resourceVersion}, "status": nil})
	if err != nil {
		return fmt.Errorf("encode an empty status of host %s: %w", name, err)
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	err = once(c.fettle.Patch(types.MergePatchType)).Resource("hosts").Name(name).SubResource("status").
		Param("fieldManager", FieldManager).Body(body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("clear status of host %s: %w", name, err)
	}
	return nil
}

// ListHost lists the one Host of that name, if it exists, and says from where to watch it. It is a list and not a get,
// since only a list gives a resourceVersion to watch from when there is none.
func (c *Client) ListHost(ctx context.Context, name string) (*fettlev1alpha1.HostList, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	var list fettlev1alpha1.HostList
	options := metav1.ListOptions{FieldSelector: byName(name)}
	if err := once(c.fettle.Get()).Resource("hosts").VersionedParams(&options, parameterCodec).Do(ctx).Into(&list); err != nil {
		return nil, fmt.Errorf("list host %s: %w", name, err)
	}
	return &list, nil
}

// WatchHost watches the one Host of that name. The watch ends after d at the latest, by the server's hand.
func (c *Client) WatchHost(ctx context.Context, name, resourceVersion string, d time.Duration) (watch.Interface, error) {
	seconds := int64(d / time.Second)
	options := metav1.ListOptions{
		Watch:               true,
		FieldSelector:       byName(name),
		ResourceVersion:     resourceVersion,
		AllowWatchBookmarks: true,
		TimeoutSeconds:      &seconds,
	}
	w, err := once(c.fettle.Get()).Resource("hosts").VersionedParams(&options, parameterCodec).Watch(ctx)
	if err != nil {
		return nil, fmt.Errorf("watch host %s: %w", name, err)
	}
	return w, nil
}

func byName(name string) string { return fields.OneTermEqualSelector("metadata.name", name).String() }

// once keeps client-go from repeating a call by itself: whoever calls has the better plan.
func once(r *rest.Request) *rest.Request { return r.MaxRetries(0) }
