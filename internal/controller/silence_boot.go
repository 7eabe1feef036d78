package controller

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/hosts"
	"github.com/fettle-dev/fettle/internal/liveness"
	"github.com/fettle-dev/fettle/internal/liveness/watch"
)

// A machine that reboots is back before its agent is: its kubelet runs pods while all that is known of it is from before. The
// lease would tell only after a grace period; the boot ID that the kubelet reports tells at once.

// undecidedPause is the time between two looks at a node whose boot nobody knows.
const undecidedPause = time.Second

// boots remembers what the kubelets and agents of nodes told of their boots.
type boots struct {
	mu     sync.Mutex
	byNode map[string]bootsOf // guarded by mu
}

type bootsOf struct {
	uid types.UID
	liveness.Boots
}

// observe folds what node and Host say now, and what is known of the process that holds the agent's lease, into what is known.
func (b *boots) observe(node *corev1.Node, host *fettlev1alpha1.Host, process watch.Process, now time.Time) liveness.Boots {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.byNode[node.Name]
	if before.uid != node.UID {
		before = bootsOf{uid: node.UID}
	}
	after := liveness.ObserveBoots(before.Boots, node.Status.NodeInfo.BootID, agentBoot(host), lifeOf(host.Status.Agent, process, now), now)
	if b.byNode == nil {
		b.byNode = map[string]bootsOf{}
	}
	b.byNode[node.Name] = bootsOf{uid: node.UID, Boots: after}
	return after
}

// lifeOf tells whether the process that last reported to the Host is the one that renews the lease.
func lifeOf(agent *fettlev1alpha1.HostAgent, process watch.Process, now time.Time) liveness.Life {
	switch {
	case agent == nil || process == watch.Process{}:
		return liveness.Unclear
	case process.Holder != "" && process.Holder != agent.ID: // another runs, and has not reported yet
		return liveness.Gone
	case process.Heard:
		return liveness.Lives
	case now.After(process.Late):
		return liveness.Gone
	}
	return liveness.Unclear
}

func (b *boots) forget(node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.byNode, node)
}

func agentBoot(host *fettlev1alpha1.Host) string {
	if host.Status.Agent == nil {
		return ""
	}
	return host.Status.Agent.BootID
}

// rebooted makes what the agent said before the boot Unknown. It looks live first: what is cached of Node and Host comes
// through two watches, and the agent may have spoken.
func (n *nodes) rebooted(ctx context.Context, node *corev1.Node, host *fettlev1alpha1.Host, since time.Time) (*corev1.Node, say, error) {
	if !has(node, host, speaks) && hosts.IsUnknown(host) {
		return node, say{}, nil
	}
	liveNode, liveHost, err := n.readLive(ctx, node.Name)
	if err != nil {
		return node, say{}, client.IgnoreNotFound(err)
	}
	if !hosts.Of(liveHost, liveNode) || agentBoot(liveHost) != agentBoot(host) {
		return node, say{again: overtakenPause}, nil
	}
	return n.silent(ctx, liveNode, liveHost, silence{
		since: since, note: noteRebooted, toHost: say{hostReason: fettlev1alpha1.ReasonHostStatusUnknown, hostMessage: rebootedMessage},
	})
}
