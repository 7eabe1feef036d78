package runtime

import (
	"context"
	"errors"
	"time"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/reasons"
)

// Reasons of runtime-network.
const (
	RuntimeNetworkNotReady = "RuntimeNetworkNotReady"
	RuntimeNetworkNotAsked = "RuntimeNetworkNotAsked"
)

// runtimeNetworkReasons are API.
var runtimeNetworkReasons = reasons.Table{
	{Name: RuntimeNetworkNotReady, Severity: reasons.Fatal, Says: "the container runtime says that the pod network is not set up, and starts no pod that needs it", Do: "see the message, which is the runtime's own; install the network plugin, or see why its DaemonSet has not written its configuration"},
	{Name: RuntimeNetworkNotAsked, Severity: reasons.Unknown, Says: "the container runtime did not tell how its network stands", Do: "see what container-runtime says"},
}

// RuntimeNetworkOptions configure runtime-network.
type RuntimeNetworkOptions struct {
	Endpoint string `key:"endpoint" doc:"where the runtime listens, as for container-runtime"`
}

// Validate reports an endpoint that is no unix socket.
func (o RuntimeNetworkOptions) Validate(fault func(what, allowed string, keys ...string)) {
	validateEndpoint(o.Endpoint, fault)
}

// RuntimeNetwork is the check "runtime-network": does the container runtime say that its network is ready?
//
// It is the runtime's condition NetworkReady, by which the kubelet decides too whether pods are started. It looks at what
// the runtime has taken in, where cni-config looks at what is on disk; a configuration that is right but came in a form
// that the runtime did not take is seen here alone. A runtime that does not answer is no fault of the network: that is
// container-runtime's to say.
var RuntimeNetwork = probes.Define(probes.Kind{
	Name:        "runtime-network",
	Condition:   "fettle.dev/NetworkReady",
	Description: "Asks the container runtime over CRI whether its network is ready.",
	Reasons:     runtimeNetworkReasons,
	Interval:    30 * time.Second,
	Timeout:     5 * time.Second,
	Thresholds:  health.Thresholds{Failure: 3, Success: 2},
	DependsOn:   []string{"container-runtime"},
}, func() RuntimeNetworkOptions { return RuntimeNetworkOptions{} }, func(env probes.Env, o RuntimeNetworkOptions) probes.Probe {
	cri := NewCRI(env.Host, env.Sockets, o.Endpoint)
	return probes.Func(func(ctx context.Context) health.Result { return judgeNetwork(cri.status(ctx)) })
})

func judgeNetwork(status *runtimev1.RuntimeStatus, err error) health.Result {
	switch {
	case errors.Is(err, ErrNoRuntime):
		return probes.NotApplicable("%v", err)
	case err != nil:
		return probes.Because(runtimeNetworkReasons, RuntimeNetworkNotAsked, "%v", err)
	}
	if ready := condition(status, runtimev1.NetworkReady); !ready.GetStatus() {
		return probes.Because(runtimeNetworkReasons, RuntimeNetworkNotReady, "%s", words(ready))
	}
	return probes.OK("the container runtime's network is ready")
}
