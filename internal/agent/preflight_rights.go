package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/credential"
	"github.com/fettle-dev/fettle/internal/kubeclient"
	"github.com/fettle-dev/fettle/internal/report"
)

// asker asks the API server for what the agent needs, by plain requests: most of them are made by nobody but preflight.
type asker struct{ rest.Interface }

func newAsker(config *rest.Config, userAgent string) (asker, error) {
	known := runtime.NewScheme() // of answers, only those that say what is wrong are decoded
	metav1.AddToGroupVersion(known, schema.GroupVersion{Version: "v1"})
	own := rest.CopyConfig(config)
	own.UserAgent, own.Timeout = userAgent, preflightLimit
	own.NegotiatedSerializer = serializer.NewCodecFactory(known).WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(own)
	if err != nil {
		return asker{}, fmt.Errorf("set up connections to %s: %w", config.Host, err)
	}
	return asker{client}, nil
}

const (
	leasesPath = "/apis/coordination.k8s.io/v1/namespaces/" + fettlev1alpha1.LeaseNamespace + "/leases"
	eventsPath = "/apis/events.k8s.io/v1/namespaces/" + metav1.NamespaceDefault + "/events"
	reviewPath = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
)

// dryRun sends a body, which is made JSON, and stores nothing.
func (a asker) dryRun(ctx context.Context, verb *rest.Request, contentType, path string, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode a request: %w", err)
	}
	return verb.AbsPath(path).Param("dryRun", metav1.DryRunAll).SetHeader("Content-Type", contentType).Body(text).MaxRetries(0).Do(ctx).Error()
}

func (a asker) create(ctx context.Context, path string, body any) error {
	return a.dryRun(ctx, a.Post(), runtime.ContentTypeJSON, path, body)
}

// apply applies a body as nobody in particular, so that it takes nothing from what the agent itself applied.
func (a asker) apply(ctx context.Context, path string, body any) error {
	request := a.Patch(types.ApplyPatchType).Param("fieldManager", "fettle-preflight").Param("force", "true")
	return a.dryRun(ctx, request, string(types.ApplyPatchType), path, body)
}

// rights tries what the agent's identity may do.
func (a asker) rights(ctx context.Context, name string, renewer *credential.Renewer) []Finding {
	uid, registered, nodeErr := a.node(ctx, name)
	all := []right{
		{need: "read the node", optional: !registered, try: func() (string, error) {
			if !registered && nodeErr == nil {
				return "node " + name + " is not registered yet; is its name right? See --node-name", nil
			}
			return "node " + name + " is registered", nodeErr
		}},
		{need: "write the lease", well: fettlev1alpha1.LeaseNamespace + "/" + name + " (dry run)", try: func() (string, error) {
			return "", a.lease(ctx, name)
		}},
		{need: "remove the lease", optional: true, well: "allowed", try: func() (string, error) { return "", a.mayRemoveLease(ctx, name) }},
		{need: "read the host object", well: "allowed", try: func() (string, error) {
			return "", a.Get().AbsPath("/apis/fettle.dev/v1alpha1/hosts").Param("fieldSelector", "metadata.name="+name).MaxRetries(0).Do(ctx).Error()
		}},
		{need: "write the host's status", well: "allowed (dry run)", try: func() (string, error) { return a.hostStatus(ctx, name) }},
		{need: "write the node's conditions", well: "allowed (dry run)", try: func() (string, error) {
			if !registered {
				return "not tried: the node is not registered yet", nodeErr
			}
			return "", a.conditions(ctx, name, uid)
		}},
		{need: "write events", optional: true, well: "allowed (dry run)", try: func() (string, error) { return "", a.event(ctx, name, uid) }},
		{need: "renew its token", optional: true, well: "allowed (dry run)", try: func() (string, error) { return a.token(ctx, renewer) }},
		{need: "fence to this node", optional: true, well: "a write for another node is refused, as it should be", try: func() (string, error) { return "", a.fence(ctx, name) }},
	}
	findings := make([]Finding, 0, len(all))
	for _, r := range all {
		findings = append(findings, r.find())
	}
	return findings
}

func (a asker) node(ctx context.Context, name string) (uid types.UID, registered bool, err error) {
	raw, err := a.Get().AbsPath("/api/v1/nodes/" + name).MaxRetries(0).Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return "", false, nil
	}
	if err != nil {
		return "", true, err
	}
	var node metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &node); err != nil {
		return "", true, fmt.Errorf("decode node: %w", err)
	}
	return node.UID, true, nil
}

func (a asker) lease(ctx context.Context, name string) error {
	err := a.create(ctx, leasesPath, map[string]any{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]string{"name": name}, "spec": map[string]string{"holderIdentity": "preflight"},
	})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// mayRemoveLease asks, since there may be no lease to remove even as a dry run.
func (a asker) mayRemoveLease(ctx context.Context, name string) error {
	text, err := json.Marshal(authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectAccessReview"},
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: fettlev1alpha1.LeaseNamespace, Verb: "delete", Group: "coordination.k8s.io", Resource: "leases", Name: name,
		}},
	})
	if err != nil {
		return fmt.Errorf("encode a request: %w", err)
	}
	raw, err := a.Post().AbsPath(reviewPath).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(text).MaxRetries(0).Do(ctx).Raw()
	if err != nil {
		return err
	}
	var answer authorizationv1.SelfSubjectAccessReview
	if err := json.Unmarshal(raw, &answer); err != nil {
		return fmt.Errorf("decode an answer: %w", err)
	}
	if !answer.Status.Allowed {
		return errors.New("not allowed, so that nodeagent cleanup leaves the lease behind; apply Fettle's manifests, which hold the rights")
	}
	return nil
}

func (a asker) hostStatus(ctx context.Context, name string) (string, error) {
	err := a.apply(ctx, "/apis/fettle.dev/v1alpha1/hosts/"+name+"/status", map[string]any{
		"apiVersion": fettlev1alpha1.GroupVersion.String(), "kind": "Host", "metadata": map[string]string{"name": name}, "status": map[string]string{},
	})
	if apierrors.IsNotFound(err) {
		return "allowed, and not there yet: the controller makes it when the node is registered", nil
	}
	return "", err
}

func (a asker) conditions(ctx context.Context, name string, uid types.UID) error {
	body, err := report.NodeStatus(name, uid, []kubeclient.NodeCondition{{Type: fettlev1alpha1.ConditionHealthy, Status: "Unknown", Reason: "Preflight"}})
	if err != nil {
		return err
	}
	return a.apply(ctx, "/api/v1/nodes/"+name+"/status", json.RawMessage(body))
}

func (a asker) event(ctx context.Context, name string, uid types.UID) error {
	return a.create(ctx, eventsPath, map[string]any{
		"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": map[string]string{"name": name + "." + uuid.NewString()}, "eventTime": metav1.NowMicro(),
		"reportingController": "fettle.dev/nodeagent", "reportingInstance": name, "type": "Normal", "reason": "Preflight", "action": "Preflight",
		"regarding": map[string]any{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid},
	})
}

// token gets a new token and throws it away: the API server keeps none, so that there is nothing to undo.
func (a asker) token(ctx context.Context, renewer *credential.Renewer) (string, error) {
	namespace, serviceAccount, request, ok := renewer.Request()
	if !ok {
		return "not needed: " + renewer.Status().Why.Error(), nil
	}
	request.TypeMeta = metav1.TypeMeta{APIVersion: authenticationv1.SchemeGroupVersion.String(), Kind: "TokenRequest"}
	return "", a.create(ctx, "/api/v1/namespaces/"+namespace+"/serviceaccounts/"+serviceAccount+"/token", request)
}

// fence writes for a node that is not ours.
func (a asker) fence(ctx context.Context, name string) error {
	err := a.lease(ctx, name+".preflight")
	switch {
	case err == nil:
		return errors.New("the agent may write for other nodes too; apply 15-policies.yaml of Fettle's manifests")
	case byPolicy(err):
		return nil
	}
	return fmt.Errorf("not known: %w", err)
}
