package controlplane_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fettle-dev/fettle/test/controlplane"
)

// The API server must find a kubelet by the name of its node and prove who it is. What answers here is a TLS server
// that demands a client certificate of the cluster CA, as a kubelet does.
func TestAPIServerReachesKubeletByNodeName(t *testing.T) {
	c := controlplane.ForTest(t, controlplane.Options{HostAliases: map[string]string{"machine-1": "127.0.0.1"}})
	pool := x509.NewCertPool()
	text, err := os.ReadFile(c.CAFile())
	if err != nil {
		t.Fatal(err)
	}
	pool.AppendCertsFromPEM(text)
	kubelet := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "called by %s for %s", r.TLS.PeerCertificates[0].Subject.CommonName, r.URL.Path)
	}))
	kubelet.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	kubelet.StartTLS()
	defer kubelet.Close()

	clients := clientset(t, c)
	own := node("machine-1")
	own.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "machine-1"}}
	own.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(kubelet.Listener.Addr().(*net.TCPAddr).Port)
	if _, err := clients.CoreV1().Nodes().Create(t.Context(), own, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := clients.CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: "machine-1", Containers: []corev1.Container{{Name: "c", Image: "none"}}}}
	if _, err := clients.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	out, err := c.Kubectl(t.Context(), "logs", "p")
	if err != nil {
		t.Fatal(err)
	}
	if want := "called by kube-apiserver-kubelet-client for /containerLogs/default/p/c"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
}
