package agent

import (
	"context"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fettle-dev/fettle/internal/config"
	"github.com/fettle-dev/fettle/internal/probes/catalogue"
	"github.com/fettle-dev/fettle/test/await"
)

// beatsWhileReportsAreSwallowed : the connection on which the node is reported on dies without a word, and so does any that
// takes its place. The heartbeat has one of its own, on which it goes on.
func beatsWhileReportsAreSwallowed(t *testing.T, r *rig, node string) {
	r.createNode(t, node)
	door, kubeconfig := r.behindADoor(t)
	p := startPart(t, kubeconfig, node, t.TempDir())
	p.say(finding(""))
	r.awaitSaid(t, node, allWell)

	door.swallow("report")
	p.say(finding("Broken"))
	await.That(t, "the report to be swallowed", func() bool { return door.swallowed() > 0 })
	r.awaitBeats(t, node, 5)
	if got := said(r.node(t, node)); got != allWell {
		t.Errorf("the report came through: %s", got)
	}
	door.swallow("")
	r.awaitSaid(t, node, netBad)
	door.mustKeepApart(t, "heartbeat", "report")
}

// beatsWhileACheckHangs is of a whole agent: one command never ends, and its check has the longest time there is for it.
func beatsWhileACheckHangs(t *testing.T, r *rig, node string) {
	r.createNode(t, node)
	c, err := config.Parse("test.yaml", []byte("checks:\n- {name: hangs, kind: exec, command: [/bin/sleep, \"1009\"], interval: 1h, timeout: 50m}\n"), catalogue.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	c.Checks = slices.DeleteFunc(c.Checks, func(c config.Check) bool { return c.Settings.Name != "hangs" })
	folder := t.TempDir()
	c.StateDir, c.HostRoot, c.Kubeconfig, c.Heartbeat = filepath.Join(folder, "state"), "/", r.agentKubeconfig, beats
	c.Endpoints = config.Endpoints{Socket: filepath.Join(folder, "agent.sock"), StatusFile: filepath.Join(folder, "status.json")}
	ctx, end := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		err := Run(ctx, Options{Config: c, NodeName: node, Version: "v", Getenv: func(string) string { return "" }, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
		if err != nil {
			t.Error(err)
		}
	})
	defer running.Wait()
	defer end()
	r.awaitBeats(t, node, 8)
	if got := said(r.node(t, node)); got != "" {
		t.Errorf("of a check that hangs at its first look is said %s", got)
	}
}

// awaitBeats waits until the Lease of a node was renewed so many times more.
func (r *rig) awaitBeats(t *testing.T, node string, more int) {
	t.Helper()
	var last time.Time
	for beat := range more {
		await.That(t, fmt.Sprintf("beat %d", beat), func() bool {
			lease := r.lease(t, node)
			moved := lease != nil && lease.Spec.RenewTime.After(last)
			if moved {
				last = lease.Spec.RenewTime.Time
			}
			return moved
		})
	}
}

// door is what an API server is reached through that sees which client uses which connection.
type door struct {
	mu       sync.Mutex
	deaf     string // the purpose whose requests are swallowed; empty: none's
	deafened int
	purposes map[string][]string // of the clients whose requests came on a connection, by its address
	opened   chan struct{}       // closed when nothing is swallowed any more
}

// behindADoor is a kubeconfig that leads through one.
func (r *rig) behindADoor(t *testing.T) (*door, string) {
	t.Helper()
	target, err := url.Parse(r.Config().Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(r.Config()))
	if err != nil {
		t.Fatal(err)
	}
	d := &door{purposes: map[string][]string{}, opened: make(chan struct{})}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport, proxy.FlushInterval = transport, -1
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if !d.enter(q) {
			panic(http.ErrAbortHandler) // an empty answer would be one
		}
		proxy.ServeHTTP(w, q)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(func() {
		d.swallow("")
		server.CloseClientConnections()
		server.Close()
	})

	c, err := clientcmd.LoadFromFile(r.agentKubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	c.Clusters["fettle"].Server = server.URL
	c.Clusters["fettle"].CertificateAuthority = ""
	c.Clusters["fettle"].CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return d, kubeconfig
}

// enter notes a request, and swallows it where that is due: then it reports false, once the door is open again or the
// client gave up.
func (d *door) enter(q *http.Request) bool {
	_, after, _ := strings.Cut(q.UserAgent(), "(")
	purpose := strings.TrimSuffix(after, ")")
	d.mu.Lock()
	if seen := d.purposes[q.RemoteAddr]; !slices.Contains(seen, purpose) {
		d.purposes[q.RemoteAddr] = append(seen, purpose)
	}
	isDeaf, opened := d.deaf != "" && slices.Contains(d.purposes[q.RemoteAddr], d.deaf), d.opened
	if isDeaf {
		d.deafened++
	}
	d.mu.Unlock()
	if !isDeaf {
		return true
	}
	select {
	case <-opened:
	case <-q.Context().Done():
	}
	return false
}

// swallow has every request on connections that carry requests of a purpose go unanswered; empty: no more.
func (d *door) swallow(purpose string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.deaf = purpose
	if purpose == "" {
		close(d.opened)
		d.opened = make(chan struct{})
	}
}

func (d *door) swallowed() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.deafened
}

// mustKeepApart : each of these purposes has connections, and no connection has two.
func (d *door) mustKeepApart(t *testing.T, purposes ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	seen := map[string]bool{}
	for conn, purposes := range d.purposes {
		if len(purposes) > 1 {
			t.Errorf("connection %s is shared by %v", conn, purposes)
		}
		seen[purposes[0]] = true
	}
	for _, purpose := range purposes {
		if !seen[purpose] {
			t.Errorf("no connection for %s: %v", purpose, d.purposes)
		}
	}
}
