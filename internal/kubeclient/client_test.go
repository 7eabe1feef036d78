package kubeclient

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fettle-dev/fettle/test/controlplane"
)

func contextFor(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}

func TestOnARealAPIServer(t *testing.T) {
	c := controlplane.ForTest(t, controlplane.Options{})
	admin, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	node, err := admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	client, err := New(c.Config(), Settings{UserAgent: "test", CallTimeout: 10 * time.Second, CallsPerSecond: 100, Burst: 100})
	if err != nil {
		t.Fatal(err)
	}
	apply := func(uid, status string, types ...string) error {
		var conditions []string
		for _, name := range types {
			conditions = append(conditions, fmt.Sprintf(`{"type":%q,"status":%q}`, name, status))
		}
		return client.ApplyNodeStatus(t.Context(), "n", fmt.Appendf(nil,
			`{"apiVersion":"v1","kind":"Node","metadata":{"name":"n","uid":%q},"status":{"conditions":[%s]}}`,
			uid, strings.Join(conditions, ",")), ApplyOptions{})
	}

	t.Run("an apply to a node of another UID is refused and told apart", func(t *testing.T) {
		if err := apply("another-uid", "True", "a"); !IsAnotherObject(err) {
			t.Errorf("got %v", err)
		}
		if err := apply(string(node.UID), "Perhaps", "a"); err != nil && IsAnotherObject(err) {
			t.Errorf("another fault is taken for another node: %v", err)
		}
		if err := apply(string(node.UID), "True"); err != nil {
			t.Fatal(err)
		}
		if got, err := client.Node(t.Context(), "n"); err != nil || got.UID != node.UID || len(got.Conditions) != 0 {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("an apply to a node that does not exist makes none", func(t *testing.T) {
		err := client.ApplyNodeStatus(t.Context(), "none", []byte(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"none","uid":"u"},"status":{}}`), ApplyOptions{})
		if !IsAnotherObject(err) {
			t.Errorf("got %v", err)
		}
		if _, err := client.Node(t.Context(), "none"); !apierrors.IsNotFound(err) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a condition that is left out of the next apply goes", func(t *testing.T) {
		for _, types := range [][]string{{"a", "b"}, {"b"}, {}} {
			if err := apply(string(node.UID), "True", types...); err != nil {
				t.Fatal(err)
			}
			got, err := client.Node(t.Context(), "n")
			if err != nil || len(got.Conditions) != len(types) {
				t.Errorf("after applying %v the node has %+v, %v", types, got.Conditions, err)
			}
		}
	})
	t.Run("a token is issued as it was asked for", func(t *testing.T) {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "issued"}}
		if _, err := admin.CoreV1().ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		seconds := int64(1200)
		issued, err := client.CreateToken(t.Context(), "default", "issued", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: &seconds,
			BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
		}})
		if err != nil {
			t.Fatal(err)
		}
		if issued.Status.Token == "" || !issued.Status.ExpirationTimestamp.After(time.Now().Add(10*time.Minute)) {
			t.Errorf("got %+v", issued.Status)
		}
		review, err := admin.AuthenticationV1().TokenReviews().Create(t.Context(),
			&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: issued.Status.Token}}, metav1.CreateOptions{})
		if err != nil || !review.Status.Authenticated || review.Status.User.Extra["authentication.kubernetes.io/node-name"][0] != "n" {
			t.Errorf("the token is taken as %+v, %v", review.Status, err)
		}
		if _, err := client.CreateToken(t.Context(), "default", "nobody", &authenticationv1.TokenRequest{}); !apierrors.IsNotFound(err) {
			t.Errorf("for an account that does not exist: %v", err)
		}
	})
	t.Run("the address of the kubelet works where the service address does not, and the other way round", func(t *testing.T) {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "agent"}}
		if _, err := admin.CoreV1().ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		token, err := c.ServiceAccountToken(t.Context(), "default", "agent", nil)
		if err != nil {
			t.Fatal(err)
		}
		pod := t.TempDir()
		write(t, filepath.Join(pod, "token"), token)
		authority, err := os.ReadFile(c.CAFile())
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(pod, "ca.crt"), string(authority))
		server, err := url.Parse(c.Config().Host)
		if err != nil {
			t.Fatal(err)
		}
		kubelet := func(server string) func(string) ([]byte, error) {
			return func(path string) ([]byte, error) {
				if path != "/etc/kubernetes/kubelet.conf" {
					return nil, fs.ErrNotExist
				}
				content := strings.Replace(kubeletConf, "https://10.0.0.1:6443", server, 1)
				return []byte(strings.Replace(content, ", tls-server-name: apiserver", "", 1)), nil
			}
		}
		for _, tc := range []struct {
			name   string
			source Source
			want   string
		}{
			{
				name:   "broken service proxy",
				source: Source{ServiceHost: "127.0.0.1", ServicePort: "1", ReadHostFile: kubelet(c.Config().Host)},
				want:   "/etc/kubernetes/kubelet.conf",
			},
			{
				name:   "an address that is out of date",
				source: Source{ServiceHost: server.Hostname(), ServicePort: server.Port(), ReadHostFile: kubelet("https://127.0.0.1:1")},
				want:   "service address",
			},
		} {
			t.Run(tc.name, func(t *testing.T) {
				tc.source.ServiceAccountDir, tc.source.KubeletKubeconfigs = pod, KubeletKubeconfigs
				connector := Connector{Source: tc.source, NodeName: "n", UserAgent: "test", Log: slog.New(slog.DiscardHandler)}
				ctx, cancel := contextFor(t, time.Minute)
				defer cancel()
				found, err := connector.Wait(ctx)
				if err != nil || !strings.Contains(found.Origin, tc.want) {
					t.Errorf("found %q, %v; want %q", found.Origin, err, tc.want)
				}
			})
		}
		t.Run("a token that is not valid is said, and not taken for an answer", func(t *testing.T) {
			write(t, filepath.Join(pod, "token"), "not a token")
			connector := Connector{NodeName: "n", UserAgent: "test", Log: slog.New(slog.DiscardHandler), Source: Source{
				ServiceAccountDir: pod, ServiceHost: server.Hostname(), ServicePort: server.Port(),
			}}
			if _, err := connector.Try(t.Context()); !apierrors.IsUnauthorized(err) {
				t.Errorf("got %v", err)
			}
		})
	})
}
