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
)

// A machine that reboots is back before its agent is: its kubelet runs pods while all that is known of it is from before. The
// lease would tell only after a grace period; the boot ID that the kubelet reports tells at once.

// boots remembers what the kubelets and agents of nodes told of their boots.
type boots struct {
	mu     sync.Mutex
	byNode map[string]bootsOf // guarded by mu
}

type bootsOf struct {
	uid types.UID
	liveness.Boots
}

// observe says since when the node's agent has said nothing after a boot; the zero time when it has, or when nobody knows.
func (b *boots) observe(node *corev1.Node, host *fettlev1alpha1.Host, now time.Time) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.byNode[node.Name]
	if before.uid != node.UID {
		before = bootsOf{uid: node.UID}
	}
	after := liveness.ObserveBoots(before.Boots, node.Status.NodeInfo.BootID, agentBoot(host), now)
	if b.byNode == nil {
		b.byNode = map[string]bootsOf{}
	}
	b.byNode[node.Name] = bootsOf{uid: node.UID, Boots: after}
	return after.Unspoken
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
