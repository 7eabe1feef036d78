package controlplane_test

import (
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fettle-dev/fettle/test/controlplane"
)

// One control plane serves all credentials tests: none of them changes what another reads.
func TestCredentials(t *testing.T) {
	c := controlplane.ForTest(t, controlplane.Options{HostAliases: map[string]string{"machine-1": "127.0.0.1"}})
	admin := clientset(t, c)
	own, err := admin.CoreV1().Nodes().Create(t.Context(), node("machine-1"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CoreV1().Nodes().Create(t.Context(), node("machine-2"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "agent"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	t.Run("a node's certificate is fenced to its node", func(t *testing.T) {
		path, err := c.KubeconfigFor(controlplane.NodeUser("machine-1"), controlplane.NodesGroup)
		if err != nil {
			t.Fatal(err)
		}
		clients := clientsOf(t, path)
		patch := []byte(`{"metadata":{"labels":{"seen":"yes"}}}`)
		if _, err := clients.CoreV1().Nodes().Patch(t.Context(), "machine-1", "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
			t.Errorf("own node: %v", err)
		}
		if _, err := clients.CoreV1().Nodes().Patch(t.Context(), "machine-2", "application/merge-patch+json", patch, metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("another's node: got %v, want Forbidden", err)
		}
	})

	t.Run("a user without rights has none", func(t *testing.T) {
		path, err := c.KubeconfigFor("nobody")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := clientsOf(t, path).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("got %v, want Forbidden", err)
		}
	})

	t.Run("a token bound to a node names the node", func(t *testing.T) {
		path, err := c.ServiceAccountKubeconfig(t.Context(), "default", "agent", own)
		if err != nil {
			t.Fatal(err)
		}
		who := whoAmI(t, clientsOf(t, path))
		if who.Username != "system:serviceaccount:default:agent" {
			t.Errorf("user %q", who.Username)
		}
		if got := strings.Join(who.Extra["authentication.kubernetes.io/node-name"], ","); got != "machine-1" {
			t.Errorf("node claim %q, want machine-1", got)
		}
		if got := strings.Join(who.Extra["authentication.kubernetes.io/node-uid"], ","); got != string(own.UID) {
			t.Errorf("node UID claim %q, want %q", got, own.UID)
		}
	})

	t.Run("a free token names no node", func(t *testing.T) {
		path, err := c.ServiceAccountKubeconfig(t.Context(), "default", "agent", nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := whoAmI(t, clientsOf(t, path)).Extra["authentication.kubernetes.io/node-name"]; len(got) != 0 {
			t.Errorf("node claim %q, want none", got)
		}
	})

	t.Run("a token bound to a pod names the pod's node", func(t *testing.T) {
		pod, err := admin.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "agent-x"},
			Spec:       corev1.PodSpec{NodeName: "machine-1", ServiceAccountName: "agent", Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		token, err := c.ServiceAccountToken(t.Context(), "default", "agent", &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID})
		if err != nil {
			t.Fatal(err)
		}
		config := rest.AnonymousClientConfig(c.Config())
		config.BearerToken = token
		clients, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(whoAmI(t, clients).Extra["authentication.kubernetes.io/node-name"], ","); got != "machine-1" {
			t.Errorf("node claim %q, want machine-1", got)
		}
	})

	t.Run("a bootstrap token authenticates", func(t *testing.T) {
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-abcdef", Namespace: "kube-system"},
			Type:       corev1.SecretTypeBootstrapToken,
			StringData: map[string]string{"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"},
		}
		if _, err := admin.CoreV1().Secrets("kube-system").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		config := rest.AnonymousClientConfig(c.Config())
		config.BearerToken = "abcdef.0123456789abcdef"
		clients, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		if who := whoAmI(t, clients); who.Username != "system:bootstrap:abcdef" {
			t.Errorf("user %q", who.Username)
		}
	})

	t.Run("the server's certificate holds for a QEMU guest and the service address", func(t *testing.T) {
		for _, name := range []string{"10.0.2.2", "10.0.0.1", "kubernetes.default.svc"} {
			config := c.Config()
			config.ServerName = name
			clients, err := kubernetes.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := clients.ServerVersion(); err != nil {
				t.Errorf("as %s: %v", name, err)
			}
		}
		path, err := c.KubeconfigVia("10.0.2.2", c.Kubeconfig())
		if err != nil {
			t.Fatal(err)
		}
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			t.Fatal(err)
		}
		requireContains(t, config.Host, "https://10.0.2.2:")
	})

	t.Run("kubectl works with a kubeconfig", func(t *testing.T) {
		out, err := c.Kubectl(t.Context(), "get", "nodes", "--output=name")
		if err != nil {
			t.Fatal(err)
		}
		if out != "node/machine-1\nnode/machine-2\n" {
			t.Errorf("got %q", out)
		}
		path, err := c.ServiceAccountKubeconfig(t.Context(), "default", "agent", own)
		if err != nil {
			t.Fatal(err)
		}
		out, err = c.Kubectl(t.Context(), "--kubeconfig="+path, "auth", "whoami", "--output=jsonpath={.status.userInfo.username}")
		if err != nil || out != "system:serviceaccount:default:agent" {
			t.Errorf("got %q, %v", out, err)
		}
		if _, err := c.Kubectl(t.Context(), "get", "node", "absent"); err == nil {
			t.Error("no error for a node that is not there")
		} else {
			requireContains(t, err.Error(), `"absent" not found`)
		}
	})

	t.Run("manifests apply and their kinds can be used at once", func(t *testing.T) {
		root, err := controlplane.RepoRoot()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Apply(t.Context(), root+"/deploy/crds"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Kubectl(t.Context(), "get", "hosts.fettle.dev"); err != nil {
			t.Error(err)
		}
	})
}

func clientsOf(t *testing.T, kubeconfig string) *kubernetes.Clientset {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return clients
}

func whoAmI(t *testing.T, clients *kubernetes.Clientset) authenticationv1.UserInfo {
	t.Helper()
	review, err := clients.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.UserInfo
}

func requireContains(t *testing.T, text, part string) {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Errorf("%q is not in %q", part, text)
	}
}
