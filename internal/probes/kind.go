package probes

import (
	"context"
	"fmt"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/reasons"
)

// Probe looks at one thing once.
//
// Run returns before ctx ends, or soon after: what ctx ends for is up to the probe to judge (a connection that was not
// answered in time is a verdict). It is never called again before it returned.
type Probe interface {
	Run(ctx context.Context) health.Result
}

// Func is a Probe without state.
type Func func(ctx context.Context) health.Result

// Run looks once.
func (f Func) Run(ctx context.Context) health.Result { return f(ctx) }

// Env is what a probe may look through.
type Env struct {
	// Host is the machine's file system.
	Host *hostfs.Root
	// Getenv reads the agent's environment.
	Getenv func(name string) string
}

// Kind declares a kind of check.
type Kind struct {
	// Name is what the configuration calls it, e.g. "cni-config".
	Name string
	// Condition is the type of the Node condition it feeds.
	Condition string
	// Description is one sentence: what is looked at, where.
	Description string
	// Reasons the probe can give beside those of Common.
	Reasons reasons.Table
	// Interval from one look to the next, Timeout of one look; both may be configured.
	Interval, Timeout time.Duration
	Thresholds        health.Thresholds

	options func() any
	build   func(env Env, options any) Probe
}

// Define ties a kind to its options and to the function that makes its probe. Options is a struct with the tags of
// package config/strict; defaults is its value where nothing is configured.
func Define[Options any](kind Kind, defaults func() Options, build func(Env, Options) Probe) Kind {
	kind.options = func() any { o := defaults(); return &o }
	kind.build = func(env Env, options any) Probe { return build(env, *options.(*Options)) }
	return kind
}

// NewOptions returns a pointer to the kind's options struct, filled with the defaults.
func (k Kind) NewOptions() any { return k.options() }

// Build makes a probe from options that came from NewOptions. Whatever the probe answers is held against the kind's
// table of reasons.
func (k Kind) Build(env Env, options any) Probe {
	return declared{kind: k, probe: k.build(env, options)}
}

// declared lets only those reasons through that the kind declares, with the verdict that their severity means.
type declared struct {
	kind  Kind
	probe Probe
}

func (d declared) Run(ctx context.Context) health.Result {
	r := d.probe.Run(ctx)
	if err := d.kind.Declares(r); err != nil {
		return health.Result{Verdict: health.Unknown, Reason: ReasonUndeclared, Message: err.Error()}
	}
	return r
}

// Declares reports an error unless the result's reason is in the kind's table, or in Common, with this verdict.
func (k Kind) Declares(r health.Result) error {
	switch r.Verdict {
	case health.OK, health.NotApplicable:
		if r.Reason != map[health.Verdict]string{health.OK: health.ReasonOK, health.NotApplicable: health.ReasonNotApplicable}[r.Verdict] {
			return fmt.Errorf("check %s gave the verdict %s with the reason %q", k.Name, r.Verdict, r.Reason)
		}
		return nil
	}
	table := k.Reasons
	if Common.Has(r.Reason) {
		table = Common
	}
	if !table.Has(r.Reason) {
		return fmt.Errorf("check %s gave the reason %q, which its table does not declare", k.Name, r.Reason)
	}
	if want := verdictOf(table.Find(r.Reason).Severity); want != r.Verdict {
		return fmt.Errorf("check %s gave the reason %q with the verdict %s, its table says %s", k.Name, r.Reason, r.Verdict, want)
	}
	return nil
}
