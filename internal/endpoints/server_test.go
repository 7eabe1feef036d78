package endpoints

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fettle-dev/fettle/test/await"
	"github.com/fettle-dev/fettle/test/port"
)

func TestTheSocketAnswers(t *testing.T) {
	path := socketPath(t)
	agent, board, source := well()
	started(t, Options{Socket: path, Board: board, Source: source})
	client := overSocket(path)
	if code, body := ask(t, client, "http://agent/healthz"); code != 200 || body != "ok\n" {
		t.Errorf("healthz: %d %q", code, body)
	}
	if code, body := ask(t, client, "http://agent/readyz"); code != 200 || body != "ok\n" {
		t.Errorf("readyz: %d %q", code, body)
	}
	if code, body := ask(t, client, "http://agent/metrics"); code != 200 || !strings.Contains(body, `fettle_check_status{check="cni-config",condition="fettle.dev/NetworkReady",status="fatal"} 1`) {
		t.Errorf("metrics: %d %q", code, body)
	}
	if code, _ := ask(t, client, "http://agent/debug/pprof/"); code != 404 {
		t.Errorf("something unknown: %d", code)
	}
	response, err := client.Post("http://agent/status", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %s", response.Status)
	}
	got, err := Ask(t.Context(), path)
	if err != nil || got.Agent != agent || got.Health.Status != "Unhealthy" || got.Cluster.Server != "https://10.0.0.1:6443" {
		t.Errorf("%+v %v", got, err)
	}

	source.change(func(s *told) { s.stalled = "checks stand still for 12s"; s.cluster = &Cluster{} })
	if code, body := ask(t, client, "http://agent/healthz"); code != 503 || body != "checks stand still for 12s\n" {
		t.Errorf("healthz: %d %q", code, body)
	}
	if code, body := ask(t, client, "http://agent/readyz"); code != 503 || body != "checks stand still for 12s\nthe cluster is not joined: no API server was found yet\n" {
		t.Errorf("readyz: %d %q", code, body)
	}
}

func TestTheAddressTellsNoStatus(t *testing.T) {
	address := reserved(t)
	started(t, Options{MetricsAddress: address})
	if code, body := ask(t, http.DefaultClient, "http://"+address+"/metrics"); code != 200 || !strings.Contains(body, "fettle_lease_held 1") {
		t.Errorf("%d %q", code, body)
	}
	if code, _ := ask(t, http.DefaultClient, "http://"+address+"/status"); code != 404 {
		t.Errorf("status: %d", code)
	}
}

// reserved is an address that nobody else gets, whoever listens on it or not.
func reserved(t *testing.T) string {
	t.Helper()
	p, err := port.Reserve(port.ReuseAddress)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Release)
	return fmt.Sprintf("127.0.0.1:%d", p.Number())
}

func TestAnAddressInUseIsTakenOnceItIsFree(t *testing.T) {
	other, err := net.Listen("tcp", reserved(t))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	var log heard
	path := socketPath(t)
	started(t, Options{MetricsAddress: other.Addr().String(), Socket: path, Log: log.log()})
	await.That(t, "the log says that it is in use", func() bool { return log.count("address already in use") > 0 })
	if code, _ := ask(t, overSocket(path), "http://agent/healthz"); code != 200 {
		t.Errorf("the socket answers %d", code)
	}
	other.Close()
	if code, _ := ask(t, http.DefaultClient, "http://"+other.Addr().String()+"/healthz"); code != 200 {
		t.Errorf("%d", code)
	}
	if n := log.count("address already in use"); n != 1 {
		t.Errorf("it was said %d times", n)
	}
}

func TestTheSocketIsForRootAndGoesWithTheAgent(t *testing.T) {
	path := socketPath(t)
	ctx, stop := context.WithCancel(t.Context())
	listener, err := listenSocket(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	there, err := os.Stat(path)
	if err != nil || there.Mode() != os.ModeSocket|0o600 {
		t.Errorf("%v %v", there, err)
	}
	stop()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
}

func TestASocketThatADeadAgentLeftIsReplaced(t *testing.T) {
	path := socketPath(t)
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	started(t, Options{Socket: path})
	if code, _ := ask(t, overSocket(path), "http://agent/healthz"); code != 200 {
		t.Errorf("%d", code)
	}
}

func TestASocketOfALivingAgentIsLeftToIt(t *testing.T) {
	path := socketPath(t)
	listener, err := listenSocket(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listenSocket(t.Context(), path); err == nil || !strings.Contains(err.Error(), "is another agent running on this machine?") {
		t.Errorf("%v", err)
	}
	var log heard
	started(t, Options{Socket: path, Log: log.log()})
	await.That(t, "the log says that there is another", func() bool { return log.count("another process answers on "+path) > 0 })
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the other's socket: %v", err)
	}
	listener.Close()
	if code, _ := ask(t, overSocket(path), "http://agent/healthz"); code != 200 {
		t.Errorf("once it has ended: %d", code)
	}
}

func TestAnAgentThatEndsLeavesItsSuccessorsSocket(t *testing.T) {
	path := socketPath(t)
	old, err := listenSocket(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	next, err := listenSocket(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("it is gone: %v", err)
	}
}

func TestWhatIsNoSocketIsLeftAlone(t *testing.T) {
	path := socketPath(t)
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listenSocket(t.Context(), path); err == nil || !strings.Contains(err.Error(), "is no socket") {
		t.Errorf("%v", err)
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != "mine" {
		t.Errorf("%q %v", content, err)
	}
}

// Clients that connect and say nothing, or never finish, could take every connection there is: here so many that others
// would have to wait for minutes until the time of all of them has run out.
func TestClientsThatNeverFinishDoNotStayInTheWay(t *testing.T) {
	path, address := socketPath(t), reserved(t)
	started(t, Options{Socket: path, MetricsAddress: address})
	for _, at := range []struct {
		network, address, url string
		client                *http.Client
	}{
		{"unix", path, "http://agent/healthz", overSocket(path)},
		{"tcp", address, "http://" + address + "/healthz", &http.Client{}},
	} {
		at.client.Timeout = time.Minute
		if code, _ := ask(t, at.client, at.url); code != 200 {
			t.Fatal(code)
		}
		for i := range 100 * maxConnections {
			slow, err := net.Dial(at.network, at.address)
			if err != nil {
				t.Fatal(err)
			}
			defer slow.Close()
			if i%2 == 0 {
				_, _ = slow.Write([]byte("GET /metrics HTTP/1.1\r\nHost: agent\r\nX-Slow: ")) // it may be closed
			}
		}
		if code, _ := ask(t, at.client, at.url); code != 200 {
			t.Errorf("%s: %d", at.network, code)
		}
	}
}

func TestLargeHeadersAreRefused(t *testing.T) {
	path := socketPath(t)
	started(t, Options{Socket: path})
	client := overSocket(path)
	if code, _ := ask(t, client, "http://agent/healthz"); code != 200 {
		t.Fatal(code)
	}
	request, err := http.NewRequest(http.MethodGet, "http://agent/healthz", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Large", strings.Repeat("x", 64<<10))
	response, err := client.Do(request)
	if err != nil {
		return // cut off before all of it was sent
	}
	response.Body.Close()
	if response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("answered with %s", response.Status)
	}
}

func TestASocketWhoseNameIsTakenAwayIsMadeAnew(t *testing.T) {
	path := socketPath(t)
	started(t, Options{Socket: path})
	await.That(t, "the socket", func() bool { _, err := os.Lstat(path); return err == nil })
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	await.That(t, "another", func() bool { _, err := os.Lstat(path); return err == nil })
	if code, _ := ask(t, overSocket(path), "http://agent/healthz"); code != 200 {
		t.Errorf("%d", code)
	}
}

func TestWhoDoesNotHoldTheSocketDoesNotWriteTheFile(t *testing.T) {
	path := socketPath(t)
	listener, err := listenSocket(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	var log heard
	file := filepath.Join(t.TempDir(), "status.json")
	started(t, Options{Socket: path, StatusFile: file, Log: log.log()})
	await.That(t, "the log says that there is another", func() bool { return log.count("another process answers on "+path) > 0 })
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the file: %v", err)
	}
	listener.Close()
	await.That(t, "the file, once the other has ended", func() bool { _, err := os.Stat(file); return err == nil })
}
