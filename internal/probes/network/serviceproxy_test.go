package network_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/probes/network"
)

func build(env map[string]string, address string) probes.Probe {
	options := network.ServiceProxy.NewOptions().(*network.ServiceProxyOptions)
	options.Address = address
	return network.ServiceProxy.Build(probes.Env{Getenv: func(name string) string { return env[name] }}, options)
}

func look(t *testing.T, p probes.Probe, timeout time.Duration) health.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return p.Run(ctx)
}

func expect(t *testing.T, got health.Result, verdict health.Verdict, reason, message string) {
	t.Helper()
	if want := (health.Result{Verdict: verdict, Reason: reason, Message: message}); got != want {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func listen(t *testing.T, network, address string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func TestAddressThatAnswers(t *testing.T) {
	l := listen(t, "tcp4", "127.0.0.1:0")
	host, port, _ := net.SplitHostPort(l.Addr().String())
	service := map[string]string{"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
	p := build(service, "")
	for range 3 {
		expect(t, look(t, p, 5*time.Second), health.OK, health.ReasonOK, l.Addr().String()+" answers")
		// Every look has a connection of its own, sends nothing and leaves at once.
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil || strings.Contains(err.Error(), "timeout") {
			t.Errorf("read %d bytes, %v", n, err)
		}
		conn.Close()
	}
	l.Close()
	expect(t, look(t, p, 5*time.Second), health.Fatal, network.ServiceAddressUnreachable, "no connection to "+l.Addr().String()+": connection refused")
	other := listen(t, "tcp4", "127.0.0.1:0").Addr().String()
	expect(t, look(t, build(service, other), 5*time.Second), health.OK, health.ReasonOK, other+" answers")
}

func TestAddressOfIPv6(t *testing.T) {
	l := listen(t, "tcp6", "[::1]:0")
	_, port, _ := net.SplitHostPort(l.Addr().String())
	p := build(map[string]string{"KUBERNETES_SERVICE_HOST": "::1", "KUBERNETES_SERVICE_PORT": port}, "")
	expect(t, look(t, p, 5*time.Second), health.OK, health.ReasonOK, "[::1]:"+port+" answers")
}

func TestWithoutAnAddressItDoesNotApply(t *testing.T) {
	for _, env := range []map[string]string{nil, {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, {"KUBERNETES_SERVICE_PORT": "443"}} {
		if got := look(t, build(env, ""), time.Second); got.Verdict != health.NotApplicable {
			t.Errorf("%v: %+v", env, got)
		}
	}
}

// A socket whose queue is full drops what comes, as a service address without a proxy behind it may.
func TestAddressThatStaysSilent(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(name.(*unix.SockaddrInet4).Port))
	for i := 0; ; i++ {
		conn, err := net.DialTimeout("tcp", address, 300*time.Millisecond)
		if err != nil {
			break // full
		}
		defer conn.Close()
		if i > 10 {
			t.Fatal("the queue does not fill up")
		}
	}
	began := time.Now()
	expect(t, look(t, build(nil, address), 400*time.Millisecond), health.Fatal, network.ServiceAddressUnreachable, address+" does not answer within the check's timeout")
	if took := time.Since(began); took < 400*time.Millisecond {
		t.Errorf("gave up after %s", took)
	}
}

func TestLookCutShortSaysNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got := build(nil, "127.0.0.1:1").Run(ctx)
	expect(t, got, health.Unknown, network.ServiceAddressNotTried, "the look at 127.0.0.1:1 was cut short")
}

func TestNameThatCannotBeResolved(t *testing.T) {
	got := look(t, build(nil, "no-such-host.invalid:443"), 10*time.Second)
	expect(t, got, health.Fatal, network.ServiceAddressUnreachable, "the name in no-such-host.invalid:443 cannot be resolved")
}

// A machine that has no descriptor left says nothing of the network.
func TestOutOfDescriptors(t *testing.T) {
	l := listen(t, "tcp4", "127.0.0.1:0")
	p := build(nil, l.Addr().String())
	expect(t, look(t, p, time.Second), health.OK, health.ReasonOK, l.Addr().String()+" answers")
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	got := look(t, p, time.Second)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	expect(t, got, health.Unknown, network.ServiceAddressNotTried, fmt.Sprintf("connecting to %s failed on this machine: too many open files", l.Addr()))
}
