package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fettle-dev/fettle/internal/credential"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/kubeclient"
)

func apiServer(ctx context.Context, o Options, host *hostfs.Root) []Finding {
	reachable := Finding{Need: "API server", Required: true}
	renewer := credential.New(credential.Options{StateDir: o.Config.StateDir, Node: o.NodeName, Log: slog.New(slog.DiscardHandler)})
	connector := &kubeclient.Connector{
		Source: sourceOf(o, host), NodeName: o.NodeName, UserAgent: userAgentOf(o), Authenticate: renewer.Use, Log: o.Log,
	}
	found, err := connector.Try(ctx)
	switch {
	case errors.Is(err, kubeclient.ErrStandalone):
		return []Finding{{Need: "API server", OK: true, Detail: err.Error()}}
	case err != nil:
		reachable.Detail = err.Error()
		if refused := renewer.Status().Refused; refused != "" {
			reachable.Detail += "; " + refused
		}
		return []Finding{reachable}
	}
	reachable.OK, reachable.Detail = true, found.Config.Host+" by "+found.Origin
	asks, err := newAsker(found.Config, userAgentOf(o))
	if err != nil {
		reachable.OK, reachable.Detail = false, err.Error()
		return []Finding{reachable}
	}
	return append([]Finding{reachable, ownToken(renewer.Status())}, asks.rights(ctx, o.NodeName, renewer)...)
}

func userAgentOf(o Options) string { return "fettle-nodeagent/" + o.Version + " (preflight)" }

// ownToken says how long the agent's identity lasts, and who renews it.
func ownToken(s credential.Status) Finding {
	f := Finding{Need: "own identity"}
	switch {
	case s.Refused != "":
		f.Detail = s.Refused
	case s.Foreign != "":
		f.Detail = s.Foreign
	case s.Renews:
		f.OK, f.Detail = true, fmt.Sprintf("a token that is bound to node %s, expires at %s and is renewed by the agent", s.Node, s.ExpiresAt.UTC().Format("2006-01-02 15:04 MST"))
	case errors.Is(s.Why, credential.ErrPodToken):
		f.OK, f.Detail = true, "the pod's token, which the kubelet renews"
	default:
		f.Detail = "the agent cannot renew it: " + s.Why.Error()
	}
	return f
}

// right is one thing that the agent must be able to ask of the API server.
type right struct {
	need     string
	optional bool
	well     string
	// try asks for it, as a dry run. A detail takes the place of well.
	try func() (detail string, err error)
}

// find tries a right. An answer that the object is there already, or not yet, comes after the API server has let the
// request through.
func (r right) find() Finding {
	f := Finding{Need: r.need, Required: !r.optional, OK: true, Detail: r.well}
	detail, err := r.try()
	if detail != "" {
		f.Detail = detail
	}
	if err != nil {
		f.OK, f.Detail = false, err.Error()
		if apierrors.IsForbidden(err) && !byPolicy(err) {
			f.Detail += "; apply Fettle's manifests, which hold the namespaces and rights"
		}
	}
	return f
}

// byPolicy reports whether an admission policy of ours refused a request that RBAC allows.
func byPolicy(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy") && strings.Contains(err.Error(), ".fettle.dev'")
}
