package kubeclient

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
)

// EventNamespace holds the events of objects that are in no namespace, such as Nodes.
const EventNamespace = metav1.NamespaceDefault

// Event has the fields of an events.k8s.io/v1 Event that the agent writes. The type of the API would bring the whole of
// core/v1 into the agent.
type Event struct {
	Name string
	// Type is Normal or Warning.
	Type string
	// Reason is why, Action what was done, both UpperCamelCase.
	Reason, Action string
	// Note is a sentence of at most 1024 bytes.
	Note string
	// Controller and Instance say whose event it is.
	Controller, Instance string
	// About is what it is about.
	About Object
	At    metav1.MicroTime
}

// Object names an object that is in no namespace.
type Object struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid"`
}

// NodeObject names a Node.
func NodeObject(name string, uid types.UID) Object {
	return Object{APIVersion: "v1", Kind: "Node", Name: name, UID: uid}
}

// HostObject names a Host.
func HostObject(name string, uid types.UID) Object {
	return Object{APIVersion: fettlev1alpha1.GroupVersion.String(), Kind: "Host", Name: name, UID: uid}
}

type eventBody struct {
	APIVersion string           `json:"apiVersion"`
	Kind       string           `json:"kind"`
	Metadata   eventMetadata    `json:"metadata"`
	EventTime  metav1.MicroTime `json:"eventTime"`
	Type       string           `json:"type"`
	Reason     string           `json:"reason"`
	Action     string           `json:"action"`
	Note       string           `json:"note"`
	Controller string           `json:"reportingController"`
	Instance   string           `json:"reportingInstance"`
	Regarding  Object           `json:"regarding"`
}

type eventMetadata struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

const eventsPath = "/apis/events.k8s.io/v1/namespaces/" + EventNamespace + "/events"

// CreateEvent creates an Event.
func (c *Client) CreateEvent(ctx context.Context, e Event) error {
	body, err := json.Marshal(eventBody{
		APIVersion: "events.k8s.io/v1", Kind: "Event",
		Metadata:  eventMetadata{Name: e.Name, Namespace: EventNamespace},
		EventTime: e.At, Type: e.Type, Reason: e.Reason, Action: e.Action, Note: e.Note,
		Controller: e.Controller, Instance: e.Instance,
		Regarding: e.About,
	})
	if err != nil {
		return fmt.Errorf("encode event %s: %w", e.Name, err)
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	err = once(c.core.Post()).AbsPath(eventsPath).SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("create event %s: %w", e.Name, err)
	}
	return nil
}

// RepeatEvent says of an Event that it came about count times in all, the last time at a time.
func (c *Client) RepeatEvent(ctx context.Context, name string, count int, at metav1.MicroTime) error {
	type series struct {
		Count int              `json:"count"`
		Last  metav1.MicroTime `json:"lastObservedTime"`
	}
	body, err := json.Marshal(map[string]series{"series": {Count: count, Last: at}})
	if err != nil {
		return fmt.Errorf("encode series of event %s: %w", name, err)
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	if err := once(c.core.Patch(types.MergePatchType)).AbsPath(eventsPath, name).Body(body).Do(ctx).Error(); err != nil {
		return fmt.Errorf("repeat event %s: %w", name, err)
	}
	return nil
}
