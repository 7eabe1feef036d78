// Command controller is the cluster side of Fettle: it turns node conditions into taints and notices silent agents.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fettle-dev/fettle/internal/controller"
	"github.com/fettle-dev/fettle/internal/version"
)

func main() {
	collectOften()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case errors.Is(err, pflag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "controller:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	f := newFlags()
	if err := f.set.Parse(args); err != nil {
		return err
	}
	if f.version {
		fmt.Println(version.String())
		return nil
	}
	if rest := f.set.Args(); len(rest) > 0 {
		return fmt.Errorf("unexpected argument %q", rest[0])
	}
	log, err := newLog(f.logFormat, f.logLevel)
	if err != nil {
		return err
	}
	f.options.Log = log
	if err := f.options.Validate(); err != nil {
		return err
	}
	cfg, err := restConfig(f.kubeconfig)
	if err != nil {
		return err
	}
	ctrllog.SetLogger(log)
	klog.SetLogger(log.WithName("client"))
	return controller.Run(ctx, cfg, f.options)
}

type flags struct {
	set                             *pflag.FlagSet
	kubeconfig, logFormat, logLevel string
	version                         bool
	options                         controller.Options
}

func newFlags() *flags {
	f := &flags{set: pflag.NewFlagSet("controller", pflag.ContinueOnError), options: controller.DefaultOptions()}
	f.set.SortFlags = false
	o := &f.options
	f.set.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file; default that of $KUBECONFIG (one file), else the pod's ServiceAccount")
	f.set.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect, "act only while holding the leader lease; needed for more than one replica")
	f.set.StringVar(&o.LeaderElectionNamespace, "leader-election-namespace", o.LeaderElectionNamespace, "namespace of the leader lease; made when it is missing and we may")
	f.set.StringVar(&o.MetricsBindAddress, "metrics-bind-address", o.MetricsBindAddress, `address that serves /metrics over HTTP; "0" turns it off`)
	f.set.StringVar(&o.HealthProbeBindAddress, "health-probe-bind-address", o.HealthProbeBindAddress, `address that serves /healthz and /readyz; "0" turns it off`)
	f.set.StringVar(&o.WebhookBindAddress, "webhook-bind-address", o.WebhookBindAddress, `address that serves the webhook for new nodes, see docs/new-nodes.md; "0" turns it off`)
	f.set.DurationVar(&o.HostLifecycleGracePeriod, "host-lifecycle-grace-period", o.HostLifecycleGracePeriod, "how long an agent may be silent before its conditions become Unknown; at least the duration and the interval of its lease are used")
	f.set.DurationVar(&o.HostStartupGracePeriod, "host-startup-grace-period", o.HostStartupGracePeriod, "how long an agent that never reported may take to appear on a node")
	f.set.Float32Var(&o.QPS, "kube-api-qps", o.QPS, "requests a second to the API server at most; negative for no limit")
	f.set.BoolVar(&o.TolerationComparison, "toleration-comparison", o.TolerationComparison, "tolerations with the operators Lt and Gt match: the API server has the feature gate TaintTolerationComparisonOperators")
	f.set.IntVar(&o.Concurrency, "concurrency", o.Concurrency, "nodes written at once")
	f.set.StringSliceVar(&o.StatusHintPrefixes, "status-hint-prefixes", o.StatusHintPrefixes, "prefixes of the annotations <prefix>/status-hint that are read from objects that rules require")
	f.set.StringVar(&f.logFormat, "log-format", "text", "text or json")
	f.set.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	f.set.BoolVar(&f.version, "version", false, "print the version and exit")
	return f
}

func newLog(format, level string) (logr.Logger, error) {
	var at slog.Level
	if err := at.UnmarshalText([]byte(level)); err != nil {
		return logr.Logger{}, fmt.Errorf("--log-level must be debug, info, warn or error, not %q", level)
	}
	if at == slog.LevelDebug {
		at = -1 // logr's V(1); what client-go says beyond that is for its developers
	}
	o := &slog.HandlerOptions{Level: at}
	switch format {
	case "text":
		return logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, o)), nil
	case "json":
		return logr.FromSlogHandler(slog.NewJSONHandler(os.Stderr, o)), nil
	}
	return logr.Logger{}, fmt.Errorf("--log-format must be text or json, not %q", format)
}

// restConfig finds the API server: the flag's file, else that of $KUBECONFIG, else what a pod has.
func restConfig(path string) (*rest.Config, error) {
	if path == "" {
		path = os.Getenv(clientcmd.RecommendedConfigPathEnvVar) // one file: a controller has one cluster
	}
	if path == "" {
		cfg, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("no API server: give --kubeconfig or $KUBECONFIG, or run in a pod with a ServiceAccount")
		}
		return cfg, err
	}
	if _, err := os.ReadFile(path); err != nil { // its error names the file; clientcmd's does not always
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, fmt.Errorf("read kubeconfig %s: it names no cluster", path)
	case err != nil:
		return nil, fmt.Errorf("read kubeconfig %s: %w", path, err)
	}
	return cfg, nil
}
