// Package kubelet stands in for the kubelet of a machine that has none (see test/machines): it registers the Node,
// posts its status and renews its lease as a kubelet does, with the same libraries, intervals and rights. It runs no
// pods.
package kubelet

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-helpers/apimachinery/lease"
	nodeutil "k8s.io/component-helpers/node/util"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Options describe the node.
type Options struct {
	// Node is its name.
	Node string
	// Labels and Taints are set when the Node is made, as by --node-labels and --register-with-taints.
	Labels map[string]string
	Taints []corev1.Taint
	// BootID says which boot the machine is in, and fails while it is down: then nothing is posted and no lease is
	// renewed. Nil is a machine that never reboots.
	BootID func() (string, error)
}

// Intervals of the real kubelet: nodeStatusUpdateFrequency is ignored, since nothing but the boot ID ever changes.
const (
	leaseDurationSeconds = 40
	leaseRenewInterval   = 10 * time.Second
	reportInterval       = 5 * time.Minute        // nodeStatusReportFrequency
	lookInterval         = 200 * time.Millisecond // how often the boot ID is looked at, and what failed is tried again
	requestTimeout       = 10 * time.Second
)

// Run keeps the Node alive until ctx ends. Like a kubelet it registers the Node once for each boot of its machine: a
// Node that somebody deletes stays away until then.
func Run(ctx context.Context, config *rest.Config, opts Options) error {
	if opts.Node == "" {
		return errors.New("run the stand-in for a kubelet: Options.Node is empty")
	}
	if opts.BootID == nil {
		opts.BootID = func() (string, error) { return "00000000-0000-0000-0000-000000000000", nil }
	}
	config = rest.CopyConfig(config)
	config.Timeout = requestTimeout
	config.UserAgent = "kubelet-stand-in"
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("run the stand-in for a kubelet: %w", err)
	}
	k := &standIn{opts: opts, clients: clients}
	ctx = klog.NewContext(ctx, klog.Logger{}) // the lease library logs every failed renewal
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		if bootID, err := opts.BootID(); err == nil {
			k.runBoot(ctx, bootID)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

type standIn struct {
	opts    Options
	clients kubernetes.Interface
}

// runBoot is a kubelet's life in one boot of its machine.
func (k *standIn) runBoot(ctx context.Context, bootID string) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	var registered bool
	var reported time.Time
	for {
		if now, err := k.opts.BootID(); err != nil || now != bootID {
			return
		}
		if !registered && k.register(ctx, bootID) == nil {
			registered = true
			go k.leases().Run(ctx)
		}
		if registered && time.Since(reported) > reportInterval && k.report(ctx, bootID) == nil {
			reported = time.Now()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// register makes the Node. One that exists is kept as it is, but for the status.
func (k *standIn) register(ctx context.Context, bootID string) error {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: k.opts.Node, Labels: map[string]string{
			corev1.LabelHostname: k.opts.Node, corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: runtime.GOARCH,
		}},
		Spec: corev1.NodeSpec{Taints: k.opts.Taints},
	}
	for key, value := range k.opts.Labels {
		node.Labels[key] = value
	}
	k.setStatus(node, bootID)
	_, err := k.clients.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// report posts the status by a strategic merge patch of what a kubelet owns: other conditions are not in it.
func (k *standIn) report(ctx context.Context, bootID string) error {
	node, err := k.clients.CoreV1().Nodes().Get(ctx, k.opts.Node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	next := node.DeepCopy()
	k.setStatus(next, bootID)
	_, _, err = nodeutil.PatchNodeStatus(k.clients.CoreV1(), types.NodeName(k.opts.Node), node, next)
	return err
}

func (k *standIn) setStatus(node *corev1.Node, bootID string) {
	status := &node.Status
	status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}, {Type: corev1.NodeHostName, Address: k.opts.Node}}
	status.Capacity = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("2Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	status.Allocatable = status.Capacity
	status.NodeInfo.BootID = bootID
	status.NodeInfo.KubeletVersion = "v1.36.3-stand-in"
	status.NodeInfo.OperatingSystem, status.NodeInfo.Architecture = runtime.GOOS, runtime.GOARCH
	now := metav1.Now()
	for _, condition := range []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory", Message: "kubelet has sufficient memory available"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", Message: "kubelet has no disk pressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID", Message: "kubelet has sufficient PID available"},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"},
	} {
		condition.LastHeartbeatTime, condition.LastTransitionTime = now, now
		i, old := nodeutil.GetNodeCondition(status, condition.Type)
		if old == nil {
			status.Conditions = append(status.Conditions, condition)
			continue
		}
		if old.Status == condition.Status {
			condition.LastTransitionTime = old.LastTransitionTime
		}
		status.Conditions[i] = condition
	}
}

func (k *standIn) leases() lease.Controller {
	return lease.NewController(clock.RealClock{}, k.clients, k.opts.Node, leaseDurationSeconds, nil, leaseRenewInterval,
		k.opts.Node, corev1.NamespaceNodeLease, k.setLeaseOwner)
}

// setLeaseOwner lets the lease go with its Node. Its error makes the library try again later.
func (k *standIn) setLeaseOwner(l *coordinationv1.Lease) error {
	if len(l.OwnerReferences) > 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	node, err := k.clients.CoreV1().Nodes().Get(ctx, k.opts.Node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
	return nil
}
