package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/internal/credential"
	"github.com/fettle-dev/fettle/internal/heartbeat"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/kubeclient"
	"github.com/fettle-dev/fettle/internal/report"
)

// CleanupOptions say what to withdraw.
type CleanupOptions struct {
	Options
	// Force withdraws although another living agent holds the Lease, which will say everything again.
	Force bool
	// State removes what the agent keeps in its state folder, too.
	State bool
	// MustJoin : that no cluster is configured is an error, since it is not known whether one was meant.
	MustJoin bool
	// Say is told of everything that was done, or found to be done already.
	Say func(what string)
}

// cleanupTries is how often something is tried anew that others changed meanwhile.
const cleanupTries = 5

// Cleanup withdraws from the cluster what agents said of this node: its conditions, the status of its Host and its
// Lease. What is not there needs no withdrawing, so that it can be repeated. Events stay, until they expire; so does the
// Host, which is the controller's. Everything is tried, whatever else fails; the error is nil when nothing is left.
func Cleanup(ctx context.Context, o CleanupOptions) error {
	host, err := hostfs.Open(o.Config.HostRoot)
	if err != nil {
		return err
	}
	defer func() { _ = host.Close() }() // only read from
	release, err := claimForCleanup(o.Config.StateDir)
	if err != nil {
		return err
	}
	defer release()
	connector := &kubeclient.Connector{
		Source: sourceOf(o.Options, host), NodeName: o.NodeName, UserAgent: cleanupAgent(o.Version), Log: o.Log,
		Authenticate: credential.New(credential.Options{StateDir: o.Config.StateDir, Node: o.NodeName, Log: o.Log}).Use,
	}
	candidate, err := connector.Try(ctx)
	switch {
	case errors.Is(err, kubeclient.ErrStandalone) && o.MustJoin:
		return errors.New("the configuration is not valid, and what is in force instead names no cluster: name the agent's kubeconfig with --kubeconfig and its node with --node-name")
	case errors.Is(err, kubeclient.ErrStandalone):
		o.Say("no cluster is configured, so nothing was said in one")
	case err != nil:
		return err // the state stays, so that the Lease is known to be ours at the next try
	default:
		if err := withdraw(ctx, o, candidate); err != nil {
			return err
		}
	}
	if o.State {
		return removeState(o.Config.StateDir, o.Say)
	}
	return nil
}

func cleanupAgent(version string) string { return "fettle-nodeagent/" + version + " (cleanup)" }

func withdraw(ctx context.Context, o CleanupOptions, candidate kubeclient.Candidate) error {
	client, err := kubeclient.New(candidate.Config, kubeclient.Settings{
		UserAgent: cleanupAgent(o.Version), CallTimeout: 10 * time.Second, CallsPerSecond: 5, Burst: 20,
	})
	if err != nil {
		return err
	}
	defer client.DropConnections()
	c := cleanup{CleanupOptions: o, api: client}
	if err := c.refuseIfSpokenFor(ctx); err != nil {
		return err
	}
	// The Lease is the last to go: while it is there, no other agent starts to speak for the node.
	return errors.Join(c.conditions(ctx), c.hostStatus(ctx), c.lease(ctx))
}

type cleanup struct {
	CleanupOptions
	api *kubeclient.Client
}

// refuseIfSpokenFor waits until it is known whether an agent other than those of this machine holds the Lease and lives.
func (c *cleanup) refuseIfSpokenFor(ctx context.Context) error {
	if c.Force {
		return nil
	}
	predecessors, err := heartbeat.Predecessors(c.Config.StateDir, c.NodeName)
	if err != nil {
		c.Log.Warn("cannot tell whether the lease is that of an agent of this machine", "error", err)
	}
	self := heartbeat.Self{Predecessors: predecessors}
	for seen := (heartbeat.Sighting{}); ; {
		lease, err := c.api.Lease(ctx, fettlev1alpha1.LeaseNamespace, c.NodeName)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		action, now := heartbeat.Decide(lease, self, seen, time.Now())
		switch {
		case action != heartbeat.Yield:
			return nil
		case seen.Holder != "" && seen != now:
			return fmt.Errorf("%s holds the lease of node %s and renews it: an agent that lives. Stop it first; "+
				"with --force everything is withdrawn all the same, and that agent will say it again", now.Holder, c.NodeName)
		case seen.Holder == "":
			c.Say("waiting to see whether " + now.Holder + ", which holds the lease, still lives")
		}
		seen = now
		if !pause(ctx, time.Second) {
			return ctx.Err()
		}
	}
}

// conditions removes all of ours from the Node, also those that the controller owns a part of.
func (c *cleanup) conditions(ctx context.Context) error {
	for range cleanupTries {
		node, err := c.api.Node(ctx, c.NodeName)
		if apierrors.IsNotFound(err) {
			c.Say("node " + c.NodeName + " does not exist")
			return nil
		}
		if c.later(ctx, err) {
			continue
		}
		if err != nil {
			return err
		}
		names := report.Ours(node)
		if len(names) == 0 && len(node.Owned) == 0 {
			c.Say("node " + c.NodeName + " has no conditions of ours")
			return nil
		}
		err = c.removeConditions(ctx, node, names)
		if err != nil && !c.later(ctx, err) && !kubeclient.IsOutdated(err) {
			return err
		}
	}
	return fmt.Errorf("remove conditions from node %s: they came back, or the node changed, %d times in a row; is an agent running?",
		c.NodeName, cleanupTries)
}

// removeConditions removes the items, whoever owns them, and then gives up what is left in the list of owners.
func (c *cleanup) removeConditions(ctx context.Context, node kubeclient.Node, names []string) error {
	if len(names) > 0 {
		patch, err := report.RemovePatch(node, names)
		if err != nil {
			return err
		}
		if err := c.api.PatchNodeStatus(ctx, c.NodeName, patch); err != nil {
			return err
		}
		for _, name := range names {
			c.Say("removed condition " + name + " from node " + c.NodeName)
		}
	}
	body, err := report.NodeStatus(c.NodeName, node.UID, nil)
	if err != nil {
		return err
	}
	return c.api.ApplyNodeStatus(ctx, c.NodeName, body, kubeclient.ApplyOptions{})
}

// hostStatus empties the status of the Host. The controller will say there that no agent ever reported.
func (c *cleanup) hostStatus(ctx context.Context) error {
	for range cleanupTries {
		list, err := c.api.ListHost(ctx, c.NodeName)
		switch {
		case apierrors.IsNotFound(err), err == nil && len(list.Items) == 0:
			c.Say("host " + c.NodeName + " does not exist")
			return nil
		case c.later(ctx, err):
			continue
		case err != nil:
			return err
		}
		host := list.Items[0]
		if host.Status.Agent == nil && host.Status.Health == nil && len(host.Status.ConditionTypes) == 0 {
			c.Say("the status of host " + c.NodeName + " says nothing of an agent")
			return nil
		}
		err = c.api.ClearHostStatus(ctx, c.NodeName, host.ResourceVersion)
		if err == nil {
			c.Say("cleared the status of host " + c.NodeName)
			return nil
		}
		if !c.later(ctx, err) && !kubeclient.IsOutdated(err) && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return fmt.Errorf("clear the status of host %s: it changed, or the API server was busy, %d times in a row", c.NodeName, cleanupTries)
}

func (c *cleanup) lease(ctx context.Context) error {
	for range cleanupTries {
		lease, err := c.api.Lease(ctx, fettlev1alpha1.LeaseNamespace, c.NodeName)
		if err == nil {
			err = c.api.DeleteLease(ctx, lease)
			if err == nil {
				c.Say("deleted lease " + fettlev1alpha1.LeaseNamespace + "/" + c.NodeName)
				return nil
			}
		}
		switch {
		case apierrors.IsNotFound(err):
			c.Say("lease " + fettlev1alpha1.LeaseNamespace + "/" + c.NodeName + " does not exist")
			return nil
		case !c.later(ctx, err) && !apierrors.IsConflict(err):
			return err
		}
	}
	return fmt.Errorf("delete lease %s/%s: it was renewed, or the API server was busy, %d times in a row", fettlev1alpha1.LeaseNamespace, c.NodeName, cleanupTries)
}

// later waits when the API server asks to be asked again later, and reports whether it did.
func (c *cleanup) later(ctx context.Context, err error) bool {
	if err == nil || !apierrors.IsTooManyRequests(err) && !apierrors.IsServerTimeout(err) && !apierrors.IsServiceUnavailable(err) {
		return false
	}
	wait := time.Second
	if s, ok := apierrors.SuggestsClientDelay(err); ok {
		wait = time.Duration(s) * time.Second
	}
	return pause(ctx, wait)
}
