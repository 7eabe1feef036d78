package runtime

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/reasons"
)

// Reasons of container-runtime.
const (
	RuntimeUnreachable = "RuntimeUnreachable"
	RuntimeNotReady    = "RuntimeNotReady"
	RuntimeFailing     = "RuntimeFailing"
	RuntimeWithoutCRI  = "RuntimeWithoutCRI"
	RuntimeNotAsked    = "RuntimeNotAsked"
)

// containerRuntimeReasons are API.
var containerRuntimeReasons = reasons.Table{
	{Name: RuntimeUnreachable, Severity: reasons.Fatal, Says: "the container runtime does not answer on its socket", Do: "see whether its service runs and what its journal says (journalctl -u containerd, or -u crio)"},
	{Name: RuntimeNotReady, Severity: reasons.Fatal, Says: "the container runtime says that it is not ready to run containers", Do: "see the message, which is the runtime's own, and its journal"},
	{Name: RuntimeFailing, Severity: reasons.Fatal, Says: "the container runtime answers the calls Version or Status with an error", Do: "see the message, which is the runtime's own, and its journal"},
	{Name: RuntimeWithoutCRI, Severity: reasons.Fatal, Says: "what answers on the socket does not speak version v1 of the Container Runtime Interface, without which a kubelet cannot use it", Do: "see in containerd's journal whether its plugin \"cri\" failed to load or is disabled in its configuration; a runtime that only knows v1alpha2 is too old and needs an upgrade"},
	{Name: RuntimeNotAsked, Severity: reasons.Unknown, Says: "the container runtime could not be asked, for a reason of the agent's own", Do: "see the message: give the agent the right to connect to the socket, or a unix:// endpoint; the machine may be out of files"},
}

// ContainerRuntimeOptions configure container-runtime.
type ContainerRuntimeOptions struct {
	Endpoint string `key:"endpoint" doc:"where the runtime listens, e.g. unix:///run/containerd/containerd.sock; empty: as the kubelet is set to use, else where containerd, CRI-O, cri-dockerd or k3s listen"`
	Required bool   `key:"required" doc:"a machine without a container runtime is at fault; otherwise the check does not apply to it, unless a kubelet has run there"`
}

// Validate reports an endpoint that is no unix socket.
func (o ContainerRuntimeOptions) Validate(fault func(what, allowed string, keys ...string)) {
	validateEndpoint(o.Endpoint, fault)
}

func validateEndpoint(endpoint string, fault func(what, allowed string, keys ...string)) {
	if endpoint == "" {
		return
	}
	if _, err := socketOf(endpoint); err != nil || !strings.HasPrefix(endpoint, "unix://") {
		fault("it is no unix socket", "unix:// and an absolute path, e.g. unix:///run/containerd/containerd.sock", "endpoint")
	}
}

// ContainerRuntime is the check "container-runtime": does the container runtime answer, and does it say that it is ready?
//
// It makes the calls Version and Status of the Container Runtime Interface, as the kubelet does, and judges the runtime's
// condition RuntimeReady; NetworkReady is judged by runtime-network. A runtime that leaves the condition out is not
// ready, as for the kubelet. What only this process or its rights keep it from asking is Unknown.
//
// Without an endpoint in the configuration, in the kubelet's flags or in its configuration file, and without one of the
// known sockets, the check does not apply, unless a kubelet has run on the machine (/var/lib/kubelet exists): there a
// socket that is gone, as it is when a runtime did not come up after boot, is a fault. So it is where a runtime has
// answered since the agent started.
var ContainerRuntime = probes.Define(probes.Kind{
	Name:        "container-runtime",
	Condition:   "fettle.dev/RuntimeReady",
	Description: "Asks the container runtime over CRI for its version and whether it is ready.",
	Reasons:     containerRuntimeReasons,
	Interval:    30 * time.Second,
	Timeout:     5 * time.Second,
	Thresholds:  health.Thresholds{Failure: 3, Success: 2},
}, func() ContainerRuntimeOptions { return ContainerRuntimeOptions{} }, func(env probes.Env, o ContainerRuntimeOptions) probes.Probe {
	return runtimeLook{cri: NewCRI(env.Host, env.Sockets, o.Endpoint), required: o.Required}
})

type runtimeLook struct {
	cri      *CRI
	required bool
}

func (l runtimeLook) Run(ctx context.Context) health.Result {
	version, err := l.cri.version(ctx)
	if err != nil {
		return l.judgeError(err)
	}
	status, err := l.cri.status(ctx)
	if err != nil {
		return l.judgeError(err)
	}
	return judgeRuntime(version, status)
}

func judgeRuntime(version *runtimev1.VersionResponse, status *runtimev1.RuntimeStatus) health.Result {
	ready := condition(status, runtimev1.RuntimeReady)
	if !ready.GetStatus() {
		return probes.Because(containerRuntimeReasons, RuntimeNotReady, "%s: %s", version.GetRuntimeName(), words(ready))
	}
	return probes.OK("%s %s is ready", version.GetRuntimeName(), version.GetRuntimeVersion())
}

// condition finds a condition of the runtime; nil: it does not tell.
func condition(status *runtimev1.RuntimeStatus, name string) *runtimev1.RuntimeCondition {
	for _, c := range status.GetConditions() {
		if c.GetType() == name {
			return c
		}
	}
	return nil
}

// words are what the runtime says of a condition that is not true.
func words(c *runtimev1.RuntimeCondition) string {
	switch {
	case c == nil:
		return "it does not tell"
	case c.GetReason() == "" && c.GetMessage() == "":
		return "it gives no reason"
	case c.GetReason() == "" || c.GetMessage() == "":
		return c.GetReason() + c.GetMessage()
	}
	return c.GetReason() + ": " + c.GetMessage()
}

func (l runtimeLook) judgeError(err error) health.Result {
	var f *failure
	switch {
	case errors.As(err, &f):
		return judgeFailure(f)
	case l.required:
		return probes.Because(containerRuntimeReasons, RuntimeUnreachable, "%v", err)
	}
	return probes.NotApplicable("%v", err)
}

// judgeFailure tells a runtime that does not work from one that could not be asked.
func judgeFailure(f *failure) health.Result {
	because := func(reason, format string, args ...any) health.Result {
		return probes.Because(containerRuntimeReasons, reason, format, args...)
	}
	var errno syscall.Errno
	switch isErrno := errors.As(f.connecting, &errno); {
	case f.canceled:
		return because(RuntimeNotAsked, "the look at %s was cut short", f.socket)
	case f.socket == "" && f.connecting == nil:
		return because(RuntimeUnreachable, "there is no socket of a container runtime, although %s exists", kubeletDir)
	case f.socket == "":
		return because(RuntimeNotAsked, "%v", f.connecting)
	case isErrno && errno == syscall.ENOENT:
		return because(RuntimeUnreachable, "%s does not exist", f.socket)
	case isErrno && ours(errno):
		return because(RuntimeNotAsked, "connecting to %s failed on the agent's side: %s", f.socket, errno.Error())
	case isErrno:
		return because(RuntimeUnreachable, "no connection to %s: %s", f.socket, errno.Error())
	case f.answer == nil:
		return because(RuntimeNotAsked, "%v", f.connecting)
	}
	switch code := f.answer.Code(); code {
	case codes.DeadlineExceeded:
		return because(RuntimeUnreachable, "what listens on %s does not answer within the check's timeout", f.socket)
	case codes.Unavailable:
		return because(RuntimeUnreachable, "what listens on %s does not hold a gRPC connection", f.socket)
	case codes.Unimplemented:
		return because(RuntimeWithoutCRI, "what listens on %s does not speak CRI v1", f.socket)
	default:
		return because(RuntimeFailing, "%s answers %s: %s", f.socket, code, f.answer.Message())
	}
}

// ours says whether a failed connect says something of this process or its rights rather than of the other side.
func ours(e syscall.Errno) bool {
	switch e {
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EACCES, syscall.EPERM:
		return true
	}
	return false
}
