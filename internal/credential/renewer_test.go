package credential_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"

	"github.com/fettle-dev/fettle/internal/credential"
	"github.com/fettle-dev/fettle/internal/kubeclient"
	"github.com/fettle-dev/fettle/test/await"
	"github.com/fettle-dev/fettle/test/controlplane"
)

// world is a control plane with Fettle's rights and policies and one node, bare.
type world struct {
	*controlplane.ControlPlane
	admin *kubernetes.Clientset
	node  *corev1.Node
	key   *rsa.PrivateKey // the cluster signs tokens by
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c := controlplane.ForTest(t, controlplane.Options{})
	manifests := "../../deploy/daemonset/"
	must(t, c.Apply(t.Context(), "../../deploy/crds", manifests+"00-namespaces.yaml", manifests+"10-rights.yaml", manifests+"15-policies.yaml"))
	admin, err := kubernetes.NewForConfig(c.Config())
	must(t, err)
	node, err := admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bare"}}, metav1.CreateOptions{})
	must(t, err)
	text, err := os.ReadFile(filepath.Join(c.Dir(), "pki", "sa.key"))
	must(t, err)
	key, err := keyutil.ParsePrivateKeyPEM(text)
	must(t, err)
	return &world{c, admin, node, key.(*rsa.PrivateKey)}
}

// token is what an administrator delivers: bound to the Node, for an hour.
func (w *world) token(t *testing.T) string {
	t.Helper()
	text, err := w.ServiceAccountToken(t.Context(), "fettle-system", "nodeagent", &authenticationv1.BoundObjectReference{
		APIVersion: "v1", Kind: "Node", Name: w.node.Name, UID: w.node.UID,
	})
	must(t, err)
	return text
}

// tokenOf is one that the cluster issued at a time for a time. The API server takes a token for a minute longer than it
// says.
func (w *world) tokenOf(t *testing.T, issued time.Time, life time.Duration) string {
	t.Helper()
	parts := strings.Split(w.token(t), ".")
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	must(t, err)
	var claims map[string]any
	must(t, json.Unmarshal(text, &claims))
	claims["iat"], claims["nbf"], claims["exp"], claims["jti"] = issued.Unix(), issued.Unix(), issued.Add(life).Unix(), "of-old"
	text, err = json.Marshal(claims)
	must(t, err)
	signed := parts[0] + "." + base64.RawURLEncoding.EncodeToString(text)
	sum := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, w.key, crypto.SHA256, sum[:])
	must(t, err)
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// by is the configuration that an agent's kubeconfig gives, with a token in a file.
func (w *world) by(tokenFile string) *rest.Config {
	config := rest.AnonymousClientConfig(w.Config())
	config.BearerTokenFile = tokenFile
	return config
}

// whose asks the API server which token a configuration uses: its ID, or the error.
func whose(t *testing.T, config *rest.Config) (id string, err error) {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	extra := review.Status.UserInfo.Extra
	if got := extra["authentication.kubernetes.io/node-name"]; len(got) != 1 || got[0] != "bare" {
		t.Errorf("the token is of node %v", got)
	}
	return strings.Join(extra["authentication.kubernetes.io/credential-id"], ","), nil
}

// agent is the part of one that holds its token.
type agent struct {
	*credential.Renewer
	config *rest.Config
	log    *safeBuffer
	stop   func()
}

// start runs a Renewer as the agent does. ahead is added to its clock.
func (w *world) start(t *testing.T, stateDir, tokenFile string, ahead *atomic.Int64) *agent {
	t.Helper()
	a := &agent{log: &safeBuffer{}}
	now := time.Now
	if ahead != nil {
		now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	}
	a.Renewer = credential.New(credential.Options{StateDir: stateDir, Node: "bare", Log: slog.New(slog.NewTextHandler(a.log, nil)), Now: now})
	a.config = a.Use(w.by(tokenFile))
	client, err := kubeclient.New(a.config, kubeclient.Settings{UserAgent: "test", CallTimeout: 10 * time.Second, CallsPerSecond: 5, Burst: 5})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { a.Run(ctx, client); close(done) }()
	a.stop = func() { cancel(); <-done }
	t.Cleanup(a.stop)
	return a
}

func TestRenewal(t *testing.T) {
	w := newWorld(t)
	// For the agent the token has expired, for the API server it will within a minute.
	first := w.tokenOf(t, time.Now().Add(-time.Hour), time.Hour-5*time.Second)
	dir, file := t.TempDir(), deliver(t, filepath.Join(t.TempDir(), "token"), first)
	outer := t // an agent outlives the part of the test that starts it
	a := w.start(outer, dir, file, nil)

	t.Run("a token that is due is exchanged at once", func(t *testing.T) {
		await.That(t, "a renewal", func() bool { return !a.Status().LastRenewal.IsZero() })
		status := a.Status()
		if !status.Renews || status.LastError != "" || status.Refused != "" || time.Until(status.ExpiresAt) < 50*time.Minute || !status.RenewAt.Before(status.ExpiresAt) {
			t.Errorf("status is %+v", status)
		}
		if id, err := whose(t, a.config); err != nil || id == "JTI=of-old" {
			t.Errorf("the token in use is %s, %v", id, err)
		}
		// It is used before it is kept, so that a disk that hangs holds nothing up.
		var kept os.FileInfo
		await.That(t, "the token to be kept", func() bool {
			var err error
			kept, err = os.Stat(filepath.Join(dir, "token.json"))
			return err == nil
		})
		if kept.Mode().Perm() != 0o600 {
			t.Errorf("the kept token's mode is %04o", kept.Mode().Perm())
		}
	})
	t.Run("the new one works when the first has expired", func(t *testing.T) {
		await.That(t, "the first token to be refused", func() bool {
			_, err := whose(t, w.by(file))
			return apierrors.IsUnauthorized(err)
		})
		if _, err := whose(t, a.config); err != nil {
			t.Error(err)
		}
	})
	t.Run("after a restart the kept one is used", func(t *testing.T) {
		before, err := whose(t, a.config)
		must(t, err)
		a.stop()
		a = w.start(outer, dir, file, nil)
		if id, err := whose(t, a.config); err != nil || id != before {
			t.Errorf("the token in use is %s, %v, want %s", id, err, before)
		}
		if s := a.Status(); !s.LastRenewal.IsZero() || time.Until(s.RenewAt) < 30*time.Minute {
			t.Errorf("status is %+v", s)
		}
	})
	t.Run("a state that is damaged leaves the delivered one, and what to do about it", func(t *testing.T) {
		a.stop()
		must(t, os.Truncate(filepath.Join(dir, "token.json"), 20))
		a = w.start(outer, dir, file, nil)
		if _, err := whose(t, a.config); !apierrors.IsUnauthorized(err) {
			t.Fatalf("got %v", err)
		}
		const advice = "kubectl create token nodeagent --namespace=fettle-system --bound-object-kind=Node --bound-object-name=bare"
		if s := a.Status(); !strings.Contains(s.Refused, "it expired at") || !strings.Contains(s.Refused, advice) {
			t.Errorf("status is %+v", s)
		}
		_, _ = whose(t, a.config)
		if log := a.log.String(); strings.Count(log, "level=ERROR") != 1 || !strings.Contains(log, "the token that was kept cannot be used") {
			t.Errorf("the log is\n%s", log)
		}
	})
	t.Run("one that is delivered then is used without a restart", func(t *testing.T) {
		deliver(t, file, w.token(t))
		if _, err := whose(t, a.config); err != nil {
			t.Error(err)
		}
		if s := a.Status(); s.Refused != "" || !s.Renews {
			t.Errorf("status is %+v", s)
		}
	})
	t.Run("no token is ever logged", func(t *testing.T) {
		if signature := first[strings.LastIndex(first, "."):]; strings.Contains(a.log.String(), signature) || strings.Contains(a.log.String(), "eyJ") {
			t.Error("the log has a token in it")
		}
	})
}

// A token that the administrator puts into the file of one that still works is used, once it was noticed.
func TestDelivery(t *testing.T) {
	w := newWorld(t)
	var ahead atomic.Int64
	dir, file := t.TempDir(), deliver(t, filepath.Join(t.TempDir(), "token"), w.tokenOf(t, time.Now().Add(-time.Minute), time.Hour))
	a := w.start(t, dir, file, &ahead)
	if id, err := whose(t, a.config); err != nil || id != "JTI=of-old" {
		t.Fatalf("the token in use is %s, %v", id, err)
	}
	deliver(t, file, "half a tok")
	ahead.Add(int64(61 * time.Second))
	if id, err := whose(t, a.config); err != nil || id != "JTI=of-old" {
		t.Errorf("after a token that is none was delivered: %s, %v", id, err)
	}
	deliver(t, file, w.token(t))
	ahead.Add(int64(61 * time.Second))
	if id, err := whose(t, a.config); err != nil || id == "JTI=of-old" {
		t.Errorf("after a new one was delivered: %s, %v", id, err)
	}

	t.Run("without a place to keep it a renewed token is used all the same", func(t *testing.T) {
		must(t, os.RemoveAll(dir))
		ahead.Add(int64(50 * time.Minute))
		deliver(t, file, w.token(t)) // wakes it; by its clock this one is old already
		await.That(t, "a renewal", func() bool { _, err := whose(t, a.config); must(t, err); return !a.Status().LastRenewal.IsZero() })
		await.That(t, "a word on the state folder", func() bool { return strings.Contains(a.log.String(), "not kept over a restart") })
		if _, err := whose(t, a.config); err != nil {
			t.Error(err)
		}
	})
}

// A renewal that is refused is tried again, and the token in use stays in use meanwhile.
func TestRefusedRenewal(t *testing.T) {
	w := newWorld(t)
	role, err := w.admin.RbacV1().RoleBindings("fettle-system").Get(t.Context(), "nodeagent", metav1.GetOptions{})
	must(t, err)
	must(t, w.admin.RbacV1().RoleBindings("fettle-system").Delete(t.Context(), "nodeagent", metav1.DeleteOptions{}))
	file := deliver(t, filepath.Join(t.TempDir(), "token"), w.tokenOf(t, time.Now().Add(-50*time.Minute), time.Hour))
	await.That(t, "the right to be gone", func() bool {
		out, _ := w.Kubectl(t.Context(), "auth", "can-i", "create", "serviceaccounts/nodeagent", "--subresource=token", "--namespace=fettle-system", "--as=system:serviceaccount:fettle-system:nodeagent")
		return strings.TrimSpace(out) == "no"
	})
	a := w.start(t, t.TempDir(), file, nil)
	await.That(t, "a failure", func() bool { return a.Status().LastError != "" })
	if s := a.Status(); !strings.Contains(s.LastError, "forbidden") || !s.Renews || !s.LastRenewal.IsZero() {
		t.Errorf("status is %+v", s)
	}
	if _, err := whose(t, a.config); err != nil {
		t.Error(err)
	}
	role.ResourceVersion, role.UID = "", ""
	_, err = w.admin.RbacV1().RoleBindings("fettle-system").Create(t.Context(), role, metav1.CreateOptions{})
	must(t, err)
	await.That(t, "a renewal", func() bool { return !a.Status().LastRenewal.IsZero() })
	if s := a.Status(); s.LastError != "" {
		t.Errorf("status is %+v", s)
	}
}

func TestWhatIsNotTheAgentsToRenew(t *testing.T) {
	folder := t.TempDir()
	for _, tc := range []struct {
		name string
		text string // of the token file; empty: no such file
		why  string
	}{
		{"no file", "", "cannot be read"},
		{"an empty file", "\n", "does not authenticate by a token"},
		{"a bootstrap token", "abcdef.0123456789abcdef", "not a JSON Web Token"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			config := &rest.Config{BearerTokenFile: filepath.Join(folder, "absent")}
			if tc.text != "" {
				config.BearerTokenFile = deliver(t, filepath.Join(folder, tc.name), tc.text)
			}
			r := credential.New(credential.Options{Log: slog.New(slog.DiscardHandler)})
			if got := r.Use(config); got != config {
				t.Errorf("the configuration was changed to %+v", got)
			}
			if s := r.Status(); s.Renews || s.Why == nil || !strings.Contains(s.Why.Error(), tc.why) {
				t.Errorf("status is %+v, want %q", s, tc.why)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { r.Run(ctx, nil); close(done) }() // there is nothing to ask for
			cancel()
			<-done
		})
	}
}

func deliver(t *testing.T, path, text string) string {
	t.Helper()
	must(t, os.WriteFile(path+".new", []byte(text+"\n"), 0o600))
	must(t, os.Rename(path+".new", path))
	return path
}

// safeBuffer is a log that is read while it is written.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
