package kubeclient

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const kubeletConf = `apiVersion: v1
kind: Config
clusters:
- name: other
  cluster: {server: "https://other:6443"}
- name: ours
  cluster: {server: "https://10.0.0.1:6443", tls-server-name: apiserver}
contexts:
- name: here
  context: {cluster: ours, user: kubelet}
current-context: here
users:
- name: kubelet
  user: {client-certificate: /var/lib/kubelet/pki/kubelet.pem, client-key: /var/lib/kubelet/pki/kubelet.pem}
`

// agentConf has a credential that can be read.
var agentConf = strings.Replace(kubeletConf, "client-certificate: /var/lib/kubelet/pki/kubelet.pem, client-key: /var/lib/kubelet/pki/kubelet.pem", "tokenFile: token", 1)

func write(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCandidates(t *testing.T) {
	pod := t.TempDir()
	write(t, filepath.Join(pod, "token"), "t")
	write(t, filepath.Join(pod, "ca.crt"), "c")
	noCA := t.TempDir()
	write(t, filepath.Join(noCA, "token"), "t")
	host := func(files map[string]string) func(string) ([]byte, error) {
		return func(path string) ([]byte, error) {
			content, ok := files[path]
			if !ok {
				return nil, fs.ErrNotExist
			}
			return []byte(content), nil
		}
	}
	folder := t.TempDir()
	write(t, filepath.Join(folder, "token"), "t")
	direct := write(t, filepath.Join(folder, "good"), agentConf)

	for _, tc := range []struct {
		name   string
		source Source
		want   []string // servers
		fails  string   // part of the error
	}{
		{name: "nothing is a way to run alone", source: Source{ServiceAccountDir: t.TempDir()}, fails: ErrStandalone.Error()},
		{name: "a kubeconfig is used alone", source: Source{Kubeconfig: direct, ServiceAccountDir: pod, ServiceHost: "10.96.0.1", ServicePort: "443"}, want: []string{"https://10.0.0.1:6443"}},
		{name: "a missing kubeconfig is a fault, in a pod too", source: Source{Kubeconfig: folder + "/none", ServiceAccountDir: pod}, fails: folder + "/none"},
		{name: "an empty one too", source: Source{Kubeconfig: write(t, folder+"/empty", ""), ServiceAccountDir: pod}, fails: folder + "/empty"},
		{name: "one that is no YAML too", source: Source{Kubeconfig: write(t, folder+"/torn", agentConf[:200]+"\n: [")}, fails: folder + "/torn"},
		{name: "one whose context is missing too", source: Source{Kubeconfig: write(t, folder+"/lost", strings.Replace(agentConf, "current-context: here", "current-context: there", 1))}, fails: "there"},
		{name: "one with a value that is not base64 names it", source: Source{Kubeconfig: write(t, folder+"/base64", strings.Replace(agentConf, "tokenFile: token", `client-certificate-data: "", client-key-data: "*"`, 1))}, fails: "client-key-data of user kubelet"},
		{name: "an authority too", source: Source{Kubeconfig: write(t, folder+"/authority", strings.Replace(agentConf, "tls-server-name: apiserver", "certificate-authority-data: '*'", 1))}, fails: "certificate-authority-data of cluster ours"},
		{
			name:   "in a pod the kubelet's address comes before the service's",
			source: Source{ServiceAccountDir: pod, ServiceHost: "10.96.0.1", ServicePort: "443", KubeletKubeconfigs: []string{"/absent", "/k"}, ReadHostFile: host(map[string]string{"/k": kubeletConf})},
			want:   []string{"https://10.0.0.1:6443", "https://10.96.0.1:443"},
		},
		{
			name:   "two files of one address are one candidate, a broken one is none",
			source: Source{ServiceAccountDir: pod, ServiceHost: "fd00::1", ServicePort: "443", KubeletKubeconfigs: []string{"/bad", "/k", "/l"}, ReadHostFile: host(map[string]string{"/bad": ": [", "/k": kubeletConf, "/l": kubeletConf})},
			want:   []string{"https://10.0.0.1:6443", "https://[fd00::1]:443"},
		},
		{
			name:   "a kubelet's address with credentials in it is none",
			source: Source{ServiceAccountDir: pod, ServiceHost: "10.96.0.1", ServicePort: "443", KubeletKubeconfigs: []string{"/k"}, ReadHostFile: host(map[string]string{"/k": strings.Replace(kubeletConf, "10.0.0.1", "u:S3CRET@10.0.0.1", 1)})},
			want:   []string{"https://10.96.0.1:443"},
		},
		{name: "a pod without an address says so", source: Source{ServiceAccountDir: pod}, fails: "KUBERNETES_SERVICE_HOST"},
		{name: "a pod without an authority says so", source: Source{ServiceAccountDir: noCA, ServiceHost: "h", ServicePort: "1"}, fails: "ca.crt"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := tc.source.Candidates()
			if tc.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tc.fails) {
					t.Fatalf("got %v, want an error with %q", err, tc.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var servers []string
			for _, c := range got {
				servers = append(servers, c.Config.Host)
			}
			if strings.Join(servers, " ") != strings.Join(tc.want, " ") {
				t.Errorf("got %v, want %v", servers, tc.want)
			}
		})
	}
	t.Run("files that a kubeconfig names are relative to it", func(t *testing.T) {
		got, err := Source{Kubeconfig: direct}.Candidates()
		if err != nil {
			t.Fatal(err)
		}
		if want := filepath.Join(folder, "token"); got[0].Config.BearerTokenFile != want || got[0].Config.ServerName != "apiserver" {
			t.Errorf("token file %s, server name %s", got[0].Config.BearerTokenFile, got[0].Config.ServerName)
		}
	})
	t.Run("the kubelet's credentials are not used", func(t *testing.T) {
		got, err := Source{ServiceAccountDir: pod, KubeletKubeconfigs: []string{"/k"}, ReadHostFile: host(map[string]string{"/k": kubeletConf})}.Candidates()
		if err != nil {
			t.Fatal(err)
		}
		if c := got[0].Config; c.CertFile != "" || c.BearerTokenFile != filepath.Join(pod, "token") || c.CAFile != filepath.Join(pod, "ca.crt") {
			t.Errorf("config is %+v", c)
		}
	})
}

func TestNoErrorShowsACredential(t *testing.T) {
	for _, address := range []string{
		`server: "https://u:S3CRET@127.0.0.1:1/"`, `server: "u:S3CRET@127.0.0.1:1"`, `server: "https://u:S3CRET@127.0.0.1:x/"`,
		`server: "https://10.0.0.1", proxy-url: "http://u:S3CRET@proxy:x"`,
		`server: "https://10.0.0.1", proxy-url: "ftp://u:S3CRET@proxy"`, `server: "https://10.0.0.1", proxy-url: "u:S3CRET@proxy"`,
	} {
		folder := t.TempDir()
		write(t, filepath.Join(folder, "token"), "t")
		path := write(t, filepath.Join(folder, "kubeconfig"), strings.Replace(agentConf, `server: "https://10.0.0.1:6443"`, address, 1))
		c := Connector{Source: Source{Kubeconfig: path}, NodeName: "n", Log: slog.New(slog.DiscardHandler)}
		if _, err := c.Try(t.Context()); err == nil || strings.Contains(err.Error(), "S3CRET") || !strings.Contains(err.Error(), "cluster ours") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestChanged(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "kubeconfig"), agentConf)
	write(t, filepath.Join(filepath.Dir(path), "token"), "t")
	source := Source{Kubeconfig: path}
	candidates, err := source.Candidates()
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name    string
		content string
		want    bool
	}{
		{name: "the same file", content: agentConf, want: false},
		{name: "a torn file is no reason to give up what works", content: agentConf[:150] + "\n: [", want: false},
		{name: "another address", content: strings.Replace(agentConf, "10.0.0.1", "10.0.0.2", 1), want: true},
	} {
		t.Run(step.name, func(t *testing.T) {
			write(t, path, step.content)
			if got := source.Changed(candidates[0]); got != step.want {
				t.Errorf("got %v, want %v", got, step.want)
			}
		})
	}
}

// A search that goes on for long says what is wrong once, and again when something else is.
func TestWaitingIsQuiet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	var log bytes.Buffer
	c := Connector{Source: Source{Kubeconfig: path}, NodeName: "n", Log: slog.New(slog.NewTextHandler(&log, nil))}
	ctx, cancel := contextFor(t, 4*time.Second)
	defer cancel()
	time.AfterFunc(2*time.Second, func() { _ = os.WriteFile(path, []byte(": ["), 0o600) })
	if _, err := c.Wait(ctx); !errors.Is(err, ctx.Err()) || err == nil {
		t.Fatalf("got %v", err)
	}
	if lines := strings.Count(log.String(), "\n"); lines != 2 || !strings.Contains(log.String(), path) {
		t.Errorf("%d lines for two faults:\n%s", lines, log.String())
	}
}
