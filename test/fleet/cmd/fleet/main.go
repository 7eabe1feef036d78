// Command fleet simulates nodes and agents against an API server and prints what their writes took.
package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/test/controlplane"
	"github.com/fettle-dev/fettle/test/fleet"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

type flags struct {
	kubeconfig string
	duration   time.Duration
	changes    float64
	fleet      fleet.Options
}

func command() *cobra.Command {
	var o flags
	cmd := &cobra.Command{
		Use:           "fleet",
		Short:         "Simulate nodes and their agents; print what their writes took",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), o)
		},
	}
	set := cmd.Flags()
	set.StringVar(&o.kubeconfig, "kubeconfig", "", "the cluster (default: a control plane of its own, with the CRDs)")
	set.IntVar(&o.fleet.Nodes, "nodes", 100, "number of nodes")
	set.StringVar(&o.fleet.Prefix, "prefix", "sim-", "first part of the nodes' names")
	set.DurationVar(&o.fleet.LeaseInterval, "lease-interval", 10*time.Second, "how often each agent renews its Lease")
	set.BoolVar(&o.fleet.NoLeases, "no-leases", false, "renew no Leases")
	set.Float64Var(&o.changes, "changes", 0, "conditions that change a second, over the whole fleet")
	set.DurationVar(&o.duration, "duration", 30*time.Second, "how long to run after all nodes are there")
	return cmd
}

func run(ctx context.Context, o flags) error {
	config, stop, err := cluster(ctx, o.kubeconfig)
	if err != nil {
		return err
	}
	defer stop()
	began := time.Now()
	f, err := fleet.Start(ctx, config, o.fleet)
	if err != nil {
		return err
	}
	defer f.Stop()
	fmt.Printf("%d nodes joined in %v\n", f.Size(), time.Since(began).Round(10*time.Millisecond))
	fmt.Println(f.Figures())
	began = time.Now()
	ctx, cancel := context.WithTimeout(ctx, o.duration)
	defer cancel()
	change(ctx, f, o.changes)
	<-ctx.Done()
	fmt.Printf("after %v more\n", time.Since(began).Round(10*time.Millisecond))
	fmt.Println(f.Figures())
	return nil
}

// change turns the network condition of random nodes at a steady rate, however long each write takes.
func change(ctx context.Context, f *fleet.Fleet, rate float64) {
	if rate <= 0 {
		return
	}
	tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer tick.Stop()
	var writing sync.WaitGroup
	defer writing.Wait()
	broken := make([]bool, f.Size())
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		i := rand.IntN(f.Size())
		broken[i] = !broken[i]
		condition := fleet.Condition{Type: fettlev1alpha1.ConditionNetworkReady, Status: corev1.ConditionTrue}
		if broken[i] {
			condition.Status, condition.Reason = corev1.ConditionFalse, "CNIConfigMissing"
		}
		writing.Go(func() { _ = f.SetCondition(ctx, i, condition) }) // failures are in the figures
	}
}

func cluster(ctx context.Context, kubeconfig string) (config *rest.Config, stop func(), err error) {
	if kubeconfig != "" {
		if config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
			return nil, nil, fmt.Errorf("read kubeconfig %s: %w", kubeconfig, err)
		}
		config.QPS = -1
		return config, func() {}, nil
	}
	root, err := controlplane.RepoRoot()
	if err != nil {
		return nil, nil, err
	}
	c, err := controlplane.Start(ctx, controlplane.Options{})
	if err != nil {
		return nil, nil, err
	}
	stop = func() {
		if err := c.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "fleet:", err)
		}
	}
	if err := c.Apply(ctx, filepath.Join(root, "deploy", "crds")); err != nil {
		stop()
		return nil, nil, err
	}
	return c.Config(), stop, nil
}
