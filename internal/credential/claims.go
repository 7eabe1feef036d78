package credential

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Claims are what a ServiceAccount's token says of itself.
type Claims struct {
	Holder
	// Pod is set when the token is bound to a pod; the kubelet renews such a token.
	Pod string
	// IssuedAt and Expires are by the API server's clock. Zero: it never expires.
	IssuedAt, Expires time.Time
}

// ErrPodToken says that a token is bound to a pod.
var ErrPodToken = errors.New("it is bound to a pod, so the kubelet renews it")

// Holder is whose token it is. UIDs are never used twice, so equal holders are of the same cluster and the same Node
// object, not only of the same names. The issuer and the audiences are not compared: a cluster may change both while
// the holder stays.
type Holder struct {
	Namespace, ServiceAccount, ServiceAccountUID string
	Node, NodeUID                                string
}

// life is how long the token holds in all.
func (c Claims) life() time.Duration { return c.Expires.Sub(c.IssuedAt) }

// renewable is nil when the agent is to renew such a token, else it says why not.
func (c Claims) renewable() error {
	switch {
	case c.Pod != "":
		return ErrPodToken
	case c.Node == "" || c.NodeUID == "":
		return errors.New("it is not bound to a Node")
	case c.Expires.IsZero():
		return errors.New("it never expires")
	case c.life() <= 0:
		return errors.New("it expires before it was issued")
	}
	return nil
}

// payload is the middle part of a ServiceAccount's JSON Web Token. Source: k8s.io/kubernetes, pkg/serviceaccount.
type payload struct {
	IssuedAt   float64 `json:"iat"`
	Expires    float64 `json:"exp"`
	Kubernetes *struct {
		Namespace      string    `json:"namespace"`
		ServiceAccount reference `json:"serviceaccount"`
		Node           reference `json:"node"`
		Pod            reference `json:"pod"`
	} `json:"kubernetes.io"`
}

type reference struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// ReadClaims reads what a token says of itself. It verifies nothing. An error says that it is not a token of a
// ServiceAccount, and holds no part of it.
func ReadClaims(token string) (Claims, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return Claims{}, errors.New("it is not a JSON Web Token")
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return Claims{}, errors.New("it is not a JSON Web Token: its payload is not base64")
	}
	var p payload
	if err := json.Unmarshal(text, &p); err != nil {
		return Claims{}, errors.New("it is not a JSON Web Token: its payload is not JSON of the right form")
	}
	if p.Kubernetes == nil || p.Kubernetes.ServiceAccount.Name == "" {
		return Claims{}, errors.New("it is not a token of a ServiceAccount")
	}
	k := p.Kubernetes
	return Claims{
		Holder: Holder{
			Namespace: k.Namespace, ServiceAccount: k.ServiceAccount.Name, ServiceAccountUID: k.ServiceAccount.UID,
			Node: k.Node.Name, NodeUID: k.Node.UID,
		},
		Pod: k.Pod.Name, IssuedAt: date(p.IssuedAt), Expires: date(p.Expires),
	}, nil
}

// date is a NumericDate of RFC 7519; zero stands for none.
func date(seconds float64) time.Time {
	if seconds <= 0 || seconds > 1<<40 {
		return time.Time{}
	}
	return time.Unix(int64(seconds), 0)
}

// advice is how to get a new token for this holder.
func (h Holder) advice() string {
	return fmt.Sprintf("deliver a new one: kubectl create token %s --namespace=%s --bound-object-kind=Node --bound-object-name=%s --duration=24h",
		h.ServiceAccount, h.Namespace, h.Node)
}
