package controlplane_test

import (
	"net"
	"net/url"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fettle-dev/fettle/test/controlplane"
)

func TestAPIServerRestartKeepsDataAndPort(t *testing.T) {
	c := controlplane.ForTest(t, controlplane.Options{})
	clients := clientset(t, c)
	if _, err := clients.CoreV1().Nodes().Create(t.Context(), node("kept"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	c.StopAPIServer()
	if _, err := clients.CoreV1().Nodes().Get(t.Context(), "kept", metav1.GetOptions{}); err == nil {
		t.Fatal("a stopped API server answered")
	}
	server, err := url.Parse(c.Config().Host)
	if err != nil {
		t.Fatal(err)
	}
	if thief, err := net.Listen("tcp", server.Host); err == nil {
		thief.Close()
		t.Fatal("another program could take the port of the stopped API server")
	}

	if err := c.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := clients.CoreV1().Nodes().Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Fatalf("the same client after the restart: %v", err)
	}
}

func TestControlPlanesRunSideBySide(t *testing.T) {
	a := controlplane.ForTest(t, controlplane.Options{})
	b := controlplane.ForTest(t, controlplane.Options{})
	if _, err := clientset(t, a).CoreV1().Nodes().Create(t.Context(), node("only-in-a"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	nodes, err := clientset(t, b).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes.Items) != 0 {
		t.Errorf("the second control plane has nodes of the first: %v", nodes.Items)
	}
}

func TestStartSaysWhatWentWrong(t *testing.T) {
	_, err := controlplane.Start(t.Context(), controlplane.Options{ExtraAPIServerArgs: []string{"--no-such-flag"}})
	if err == nil {
		t.Fatal("the API server started with a flag that does not exist")
	}
	requireContains(t, err.Error(), "no-such-flag")
}

func node(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
}
