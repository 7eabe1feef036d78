// Command demo shows the product on real parts: an API server, three systemd machines with an agent each, the
// controller, two rules. It breaks and repairs one machine's network configuration and shows what follows, live.
//
// It needs root, and the programs in bin/. Everything it started is gone when it ends, also after Ctrl-C.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/test/e2e/stack"
)

func main() {
	hold := flag.Bool("hold", false, "stay until Ctrl-C after the story, to look around with kubectl")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := demo(ctx, *hold)
	stopped := ctx.Err() != nil
	stop()
	switch {
	case stopped:
		fmt.Println("stopped; everything is cleaned up")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func demo(ctx context.Context, hold bool) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("machines need root; run me with sudo")
	}
	fmt.Println("starting an API server, three machines and the controller ...")
	s, err := stack.Start(ctx, stack.Options{Nodes: []string{"rack1-a", "rack1-b", "rack2-a"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	if err := s.ControlPlane.Apply(ctx, s.Path("deploy/examples")); err != nil {
		return err
	}

	table := newTable(s, os.Stdout)
	shown := make(chan struct{})
	showing, done := context.WithCancel(ctx)
	go func() { table.show(showing); close(shown) }()
	defer func() { done(); <-shown }()

	if err := tell(ctx, s, table); err != nil {
		return err
	}
	if hold {
		table.say("look around: KUBECONFIG=%s %s/kubectl get hosts,nrr   (Ctrl-C ends)", s.ControlPlane.Kubeconfig(), s.ControlPlane.BinDir())
		<-ctx.Done()
	}
	return nil
}

// tell plays the story: each step is done once the cluster says so.
func tell(ctx context.Context, s *stack.Stack, table *table) error {
	const network = "readiness.k8s.io/network"
	victim := s.Node("rack1-b")
	ready := func(status corev1.ConditionStatus, tainted bool) func(context.Context) error {
		return stack.All(s.Says(victim.Name, fettlev1alpha1.ConditionNetworkReady, status, ""), s.Tainted(victim.Name, network, tainted))
	}
	for _, step := range []struct {
		say string
		do  func(context.Context) error
		see string
		is  func(context.Context) error
	}{
		{"waiting for all machines to report", nil, "all machines are well and take pods", func(ctx context.Context) error {
			for _, n := range s.Nodes {
				if err := stack.All(s.Says(n.Name, fettlev1alpha1.ConditionHealthy, corev1.ConditionTrue, ""), s.Tainted(n.Name, network, false))(ctx); err != nil {
					return err
				}
			}
			return nil
		}},
		{"breaking " + stack.CNIConfigPath + " on " + victim.Name, victim.BreakCNI, "its agent saw it, the rule holds it: no new pods", ready(corev1.ConditionFalse, true)},
		{"repairing it", victim.RepairCNI, "the machine is well, the taint is gone", ready(corev1.ConditionTrue, false)},
	} {
		table.say("%s ...", step.say)
		start := time.Now()
		if step.do != nil {
			if err := step.do(ctx); err != nil {
				return err
			}
		}
		if err := stack.Await(ctx, step.say, step.is); err != nil {
			return err
		}
		table.say("%s (%.1f s)", step.see, time.Since(start).Seconds())
		if err := pause(ctx, 3*time.Second); err != nil { // so that a person can read it
			return err
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
