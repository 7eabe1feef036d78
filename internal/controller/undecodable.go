package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
)

// undecodable names in the log the objects of our kinds that cannot be decoded. One such object makes every list of its kind
// fail. The schemas of deploy/crds let none be stored, but one may be from before they were applied.
//
// Such an object is not left out: a rule that is not seen looks like one that was deleted, whose nodes are let go.
type undecodable struct {
	api client.Client
	log logr.Logger
}

// ours are the kinds with schemas of ours.
var ours = []client.Object{&readinessv1alpha1.NodeReadinessRule{}, &fettlev1alpha1.Host{}, &fettlev1alpha1.FleetPolicy{}}

// watchFailed is called by caches, which then try again after a while.
func (u undecodable) watchFailed(ctx context.Context, r *toolscache.Reflector, err error) {
	toolscache.DefaultWatchErrorHandler(ctx, r, err)
	i := slices.IndexFunc(ours, func(obj client.Object) bool { return fmt.Sprintf("%T", obj) == r.TypeDescription() })
	if i < 0 || !mayBeOfDecoding(err) {
		return
	}
	// An error of the look itself is of the API server, which the cache meets too.
	if found, err := u.look(ctx, ours[i]); err == nil && found != nil {
		u.log.Error(found, "nothing new is seen of a kind while one of its objects cannot be decoded; mend or delete it")
	}
}

// mayBeOfDecoding is false for what the API server or the network answered.
func mayBeOfDecoding(err error) bool {
	var status apierrors.APIStatus
	var network net.Error
	return !errors.As(err, &status) && !errors.As(err, &network) && !errors.Is(err, io.EOF)
}

// look lists the objects of a kind without their types, and tries to decode each. found says which cannot be.
func (u undecodable) look(ctx context.Context, empty client.Object) (found, err error) {
	kind, err := u.api.GroupVersionKindFor(empty)
	if err != nil {
		return nil, err
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	if err := u.api.List(ctx, list); err != nil {
		return nil, err
	}
	var all []error
	for i := range list.Items {
		raw, err := list.Items[i].MarshalJSON()
		if err == nil {
			err = json.Unmarshal(raw, empty.DeepCopyObject())
		}
		if err != nil {
			all = append(all, fmt.Errorf("%s %s cannot be decoded: %w", kind.Kind, list.Items[i].GetName(), err))
		}
	}
	return errors.Join(all...), nil
}
