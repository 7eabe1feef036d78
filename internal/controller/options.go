package controller

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/validation"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fettle-dev/fettle/internal/fleet"
	"github.com/fettle-dev/fettle/internal/liveness"
	"github.com/fettle-dev/fettle/internal/objectstatus"
)

// Namespace is where the controller and its leader lease live.
const Namespace = "fettle-system"

// LeaderLease is the name of the leader lease.
const LeaderLease = "fettle-controller"

// UserAgent identifies the controller's requests, and names it as a field manager.
const UserAgent = "fettle-controller"

// Options of the controller. DefaultOptions gives those of a production controller.
type Options struct {
	// LeaderElect makes the controller act only while it holds the leader lease in LeaderElectionNamespace.
	LeaderElect             bool
	LeaderElectionNamespace string
	// LeaderLeaseDuration, LeaderRenewDeadline and LeaderRetryPeriod are those of client-go's leader election.
	LeaderLeaseDuration, LeaderRenewDeadline, LeaderRetryPeriod time.Duration

	// MetricsBindAddress and HealthProbeBindAddress are host:port; "0" turns the server off.
	MetricsBindAddress, HealthProbeBindAddress string
	// WebhookBindAddress is the host:port of the webhook for new nodes; "0" turns it off.
	WebhookBindAddress string

	// HostLifecycleGracePeriod is how long an agent may be silent; an agent whose lease asks for more gets more.
	HostLifecycleGracePeriod time.Duration
	// HostStartupGracePeriod is how long an agent that never reported may take to appear.
	HostStartupGracePeriod time.Duration
	// Fleet limits what is made of many silences at once, where no FleetPolicy says otherwise.
	Fleet fleet.Limits

	// StatusHintPrefixes are the prefixes of annotations <prefix>/status-hint that rules' objects may carry.
	StatusHintPrefixes []string

	// QPS limits the requests a second to the API server, with bursts of twice as many; negative is no limit, since the
	// API server's own priority and fairness knows better.
	QPS float32
	// TolerationComparison says that tolerations with the operators Lt and Gt match, as they do where the API server has the
	// feature gate TaintTolerationComparisonOperators.
	TolerationComparison bool
	// Concurrency is the number of nodes that are written at once.
	Concurrency int

	// Metrics is where the controller's metrics are registered while it runs. MetricsBindAddress serves controller-runtime's
	// registry alone, the default.
	Metrics prometheus.Registerer

	Log logr.Logger
}

// DefaultOptions are those of the flags.
func DefaultOptions() Options {
	return Options{
		LeaderElectionNamespace:  Namespace,
		LeaderLeaseDuration:      15 * time.Second,
		LeaderRenewDeadline:      10 * time.Second,
		LeaderRetryPeriod:        2 * time.Second,
		MetricsBindAddress:       "0",
		HealthProbeBindAddress:   ":8081",
		WebhookBindAddress:       "0",
		HostLifecycleGracePeriod: 50 * time.Second,
		HostStartupGracePeriod:   2 * time.Minute,
		Fleet:                    fleet.DefaultLimits(),
		StatusHintPrefixes:       []string{objectstatus.DefaultAnnotationPrefix},
		QPS:                      -1,
		Concurrency:              16,
		Metrics:                  ctrlmetrics.Registry,
		Log:                      logr.Discard(),
	}
}

// Validate reports all faults at once, by the name of the flag.
func (o Options) Validate() error {
	var faults []error
	refuse := func(flag, allowed string, got any) {
		faults = append(faults, fmt.Errorf("--%s must be %s, not %v", flag, allowed, got))
	}
	if o.HostLifecycleGracePeriod <= 0 {
		refuse("host-lifecycle-grace-period", "more than 0", o.HostLifecycleGracePeriod)
	}
	if o.HostStartupGracePeriod <= 0 {
		refuse("host-startup-grace-period", "more than 0", o.HostStartupGracePeriod)
	}
	for _, prefix := range o.StatusHintPrefixes {
		if len(validation.IsDNS1123Subdomain(prefix)) > 0 {
			refuse("status-hint-prefixes", "DNS subdomains", prefix)
		}
	}
	if o.Concurrency < 1 {
		refuse("concurrency", "at least 1", o.Concurrency)
	}
	if o.QPS == 0 {
		refuse("kube-api-qps", "more than 0, or negative for no limit", o.QPS)
	}
	if o.LeaderElect && o.LeaderElectionNamespace == "" {
		refuse("leader-election-namespace", "the name of a namespace", `""`)
	}
	return errors.Join(faults...)
}

func (o Options) limits() liveness.Limits {
	return liveness.Limits{Grace: o.HostLifecycleGracePeriod, StartupGrace: o.HostStartupGracePeriod}
}
