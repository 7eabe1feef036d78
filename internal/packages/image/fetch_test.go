package image_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/fettle-dev/fettle/internal/packages/image"
)

func TestAnImageIsPulledOnceForItsDigest(t *testing.T) {
	var blobs atomic.Int64
	host := served(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
				blobs.Add(1)
			}
			next.ServeHTTP(w, r)
		})
	})
	ref := pushed(t, host, build(t, archive(t, entry{name: "a", content: "1"})))
	s := store(t, roomy)
	for range 3 {
		found, err := image.Registry{}.Find(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Unpack(t.Context(), found)
		if err != nil {
			t.Fatal(err)
		}
		if got.Pinned != found.Pinned || tree(t, got.Root)["a"] != "1" {
			t.Errorf("%+v", got)
		}
	}
	if n := blobs.Load(); n != 2 { // configuration and layer
		t.Errorf("%d blobs were read", n)
	}
}

func TestAnIndexIsPinnedByItsOwnDigest(t *testing.T) {
	ours := build(t, archive(t, entry{name: "ours"}))
	other := build(t, archive(t, entry{name: "other"}))
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "none"}}},
		mutate.IndexAddendum{Add: ours, Descriptor: v1.Descriptor{Platform: &image.Platform}})
	ref := pushed(t, served(t, nil), index)
	want, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	s := store(t, roomy)
	for _, digest := range []string{"", want.String()} {
		ref.Digest = digest
		found, err := image.Registry{}.Find(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Unpack(t.Context(), found)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := tree(t, got.Root)["ours"]; !ok || got.Pinned != want.String() {
			t.Errorf("%+v", got)
		}
	}
}

func TestADigestDecidesAndNotTheTag(t *testing.T) {
	host := served(t, nil)
	first := build(t, archive(t, entry{name: "first"}))
	ref := pushed(t, host, first)
	digest, err := first.Digest()
	if err != nil {
		t.Fatal(err)
	}
	pushed(t, host, build(t, archive(t, entry{name: "second"}))) // the tag moves on
	ref.Digest = digest.String()
	found, err := image.Registry{}.Find(t.Context(), ref)
	if err != nil || found.Digest != digest {
		t.Errorf("%v %v", found, err)
	}
}

func reasonOf(t *testing.T, err error) string {
	t.Helper()
	var f *image.Failure
	if !errors.As(err, &f) {
		t.Fatalf("%v", err)
	}
	if !image.Reasons.Has(f.Reason) {
		t.Errorf("%s is not in the table", f.Reason)
	}
	return f.Reason
}

func TestWhatGoesWrongWithARegistry(t *testing.T) {
	content := build(t, archive(t, entry{name: "a", content: strings.Repeat("abc", 1000)}))
	digest, err := content.Digest()
	if err != nil {
		t.Fatal(err)
	}
	answer := func(status int) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/manifests/") {
					w.WriteHeader(status)
					return
				}
				next.ServeHTTP(w, r)
			})
		}
	}
	// alter changes the answer to requests for blobs.
	alter := func(change func([]byte) []byte) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/") {
					next.ServeHTTP(w, r)
					return
				}
				answer := httptest.NewRecorder()
				next.ServeHTTP(answer, r)
				if b := change(answer.Body.Bytes()); len(b) > 0 {
					_, _ = w.Write(b)
				}
			})
		}
	}
	for _, tc := range []struct {
		name   string
		around func(http.Handler) http.Handler
		ref    func(*image.Reference)
		reason string
	}{
		{name: "no such version", ref: func(r *image.Reference) { r.Version = "2.0.0" }, reason: image.NotFound},
		{name: "no such digest", ref: func(r *image.Reference) { r.Digest = "sha256:" + strings.Repeat("0", 64) }, reason: image.NotFound},
		{name: "a name that is none", ref: func(r *image.Reference) { r.Repository = "A B" }, reason: image.NotFound},
		{name: "unauthorized", around: answer(http.StatusUnauthorized), reason: image.Unauthorized},
		{name: "forbidden", around: answer(http.StatusForbidden), reason: image.Unauthorized},
		{name: "broken", around: answer(http.StatusTeapot), reason: image.Unreachable},
		{name: "away", ref: func(r *image.Reference) { r.Repository = "127.0.0.1:1/org/package" }, reason: image.Unreachable},
		{name: "another manifest under the digest", ref: func(r *image.Reference) { r.Digest = digest.String() }, around: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/manifests/sha256:") {
					w.Header().Set("Content-Type", "application/vnd.docker.distribution.manifest.v2+json")
					_, _ = io.WriteString(w, "{}")
					return
				}
				next.ServeHTTP(w, r)
			})
		}, reason: image.WrongDigest},
		{name: "altered blobs", around: alter(func(b []byte) []byte { b = bytes.Clone(b); b[len(b)/2] ^= 1; return b }), reason: image.WrongDigest},
		{name: "other blobs of the same length", around: alter(func(b []byte) []byte { return make([]byte, len(b)) }), reason: image.WrongDigest},
		{name: "blobs cut short", around: alter(func(b []byte) []byte { return b[:len(b)/2] }), reason: image.WrongDigest},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var live atomic.Bool // what is altered is only what is read, not what is pushed before
			host := served(t, func(next http.Handler) http.Handler {
				around := next
				if tc.around != nil {
					around = tc.around(next)
				}
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if live.Load() {
						around.ServeHTTP(w, r)
					} else {
						next.ServeHTTP(w, r)
					}
				})
			})
			ref := pushed(t, host, content)
			if tc.ref != nil {
				tc.ref(&ref)
			}
			live.Store(true)
			found, err := image.Registry{}.Find(t.Context(), ref)
			if err == nil {
				_, err = store(t, roomy).Unpack(t.Context(), found)
			}
			if got := reasonOf(t, err); got != tc.reason {
				t.Errorf("%s: %v", got, err)
			}
		})
	}
}

func TestARegistryThatHangsIsLeftWhenTheTimeIsUp(t *testing.T) {
	stop := make(chan struct{})
	host := served(t, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stop })
	})
	t.Cleanup(func() { close(stop) })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := image.Registry{}.Find(ctx, image.Reference{Repository: host + "/a", Version: "1.0.0"})
	if reasonOf(t, err) != image.Unreachable {
		t.Errorf("%v", err)
	}
	if _, err := (image.Registry{}).Find(canceled(t), image.Reference{Repository: host + "/a", Version: "1.0.0"}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestMirrorsComeFirst(t *testing.T) {
	content := build(t, archive(t, entry{name: "a"}))
	good, own := served(t, nil), served(t, nil)
	pushed(t, own, content)
	at, err := name.ParseReference(good + "/copy/org/package:1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	if err := remoteWrite(at, content); err != nil {
		t.Fatal(err)
	}
	ref := image.Reference{Repository: "registry.invalid/org/package", Version: "1.0.0"}
	for _, tc := range []struct {
		name    string
		ref     image.Reference
		mirrors []image.Mirror
		says    string
	}{
		{name: "the registry is away", ref: ref, mirrors: []image.Mirror{{Endpoint: good + "/copy/"}}},
		{name: "one mirror is away", ref: ref, mirrors: []image.Mirror{{Endpoint: "127.0.0.1:1"}, {Registry: "registry.invalid", Endpoint: good + "/copy"}}},
		{name: "the mirror is away", ref: image.Reference{Repository: own + "/org/package", Version: "1.0.0"}, mirrors: []image.Mirror{{Endpoint: "127.0.0.1:1"}}},
		{name: "the mirror is of another registry", ref: ref, mirrors: []image.Mirror{{Registry: "other.invalid", Endpoint: good + "/copy"}}, says: "registry.invalid"},
		{name: "all are away", ref: ref, mirrors: []image.Mirror{{Endpoint: "127.0.0.1:1"}}, says: "at 127.0.0.1:1"},
	} {
		_, err := image.Registry{Mirrors: tc.mirrors}.Find(t.Context(), tc.ref)
		switch {
		case tc.says == "" && err != nil:
			t.Errorf("%s: %v", tc.name, err)
		case tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)):
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

func TestPullCredentials(t *testing.T) {
	guard := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if user, password, _ := r.BasicAuth(); user != "u" || password != "secret" {
				w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	var guarded atomic.Bool
	host := served(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if guarded.Load() {
				guard(next).ServeHTTP(w, r)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	ref := pushed(t, host, build(t, archive(t, entry{name: "a"})))
	guarded.Store(true)
	for at, works := range map[string]bool{
		host: true, "http://" + host + "/v2/": true, host + "/org": true, host + "/org/package": true, host + "/o": false, "other.invalid": false,
	} {
		c, err := image.ReadCredentials([]byte(`{"auths": {"` + at + `": {"auth": "dTpzZWNyZXQ="}, "x.invalid": {"username": "a", "password": "b"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		_, err = image.Registry{Credentials: c}.Find(t.Context(), ref)
		if works != (err == nil) || err != nil && reasonOf(t, err) != image.Unauthorized {
			t.Errorf("%s: %v", at, err)
		}
	}
	for _, broken := range []string{"", "[]", `{"auths": {"x": "secret"}}`, `{"auths": {"x": {"auth": "c2VjcmV0"}}}`} {
		if _, err := image.ReadCredentials([]byte(broken)); err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "c2VjcmV0") {
			t.Errorf("%q: %v", broken, err)
		}
	}
}

func TestWithoutARegistry(t *testing.T) {
	one, two := build(t, archive(t, entry{name: "one"})), build(t, archive(t, entry{name: "two"}))
	digest, err := two.Digest()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	lay := func(name string, images map[string]v1.Image) string {
		path, err := layout.Write(filepath.Join(dir, name), empty.Index)
		if err != nil {
			t.Fatal(err)
		}
		for named, content := range images {
			var options []layout.Option
			if named != "" {
				options = append(options, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": named}))
			}
			if err := path.AppendImage(content, options...); err != nil {
				t.Fatal(err)
			}
		}
		return string(path)
	}
	pack := func(file string, images map[string]v1.Image) string {
		tagged := map[name.Tag]v1.Image{}
		for ref, content := range images {
			tag, err := name.NewTag(ref)
			if err != nil {
				t.Fatal(err)
			}
			tagged[tag] = content
		}
		at := filepath.Join(dir, file)
		if err := tarball.MultiWriteToFile(at, tagged); err != nil {
			t.Fatal(err)
		}
		return at
	}
	ref := image.Reference{Repository: "registry.invalid/org/package", Version: "2"}
	pinned := ref
	pinned.Digest = digest.String()
	both := lay("both", map[string]v1.Image{"1": one, "2": two})
	broken := lay("broken", map[string]v1.Image{"2": two})
	blobs, err := filepath.Glob(filepath.Join(broken, "blobs/sha256/*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, blob := range blobs {
		if content, err := os.ReadFile(blob); err == nil && content[0] == 0x1f { // the layer
			content[len(content)-1] ^= 1
			if err := os.WriteFile(blob, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tc := range []struct {
		name   string
		path   string
		ref    image.Reference
		reason string
	}{
		{name: "a layout of one", path: lay("single", map[string]v1.Image{"": two}), ref: ref},
		{name: "a layout of two, by the version", path: both, ref: ref},
		{name: "a layout of two, by the digest", path: both, ref: pinned},
		{name: "a layout of two others", path: both, ref: image.Reference{Repository: "x.invalid/y", Version: "3"}, reason: image.NotFound},
		{name: "a layout that was altered", path: broken, ref: ref, reason: image.WrongDigest},
		{name: "an archive of one", path: pack("one.tar", map[string]v1.Image{"x.invalid/y:1": two}), ref: ref},
		{name: "an archive of two", path: pack("two.tar", map[string]v1.Image{"registry.invalid/org/package:2": two, "registry.invalid/org/package:1": one}), ref: ref},
		{name: "an archive of two others", path: filepath.Join(dir, "two.tar"), ref: image.Reference{Repository: "x.invalid/y", Version: "3"}, reason: image.NotFound},
		{name: "nothing", path: filepath.Join(dir, "nothing"), ref: ref, reason: image.NotFound},
		{name: "an empty folder", path: t.TempDir(), ref: ref, reason: image.Malformed},
		{name: "a file that is no archive", path: filepath.Join(broken, "index.json"), ref: ref, reason: image.Malformed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			found, err := image.FromFile(tc.path, tc.ref)
			var got *image.Unpacked
			if err == nil {
				got, err = store(t, roomy).Unpack(t.Context(), found)
			}
			switch {
			case tc.reason != "":
				if reasonOf(t, err) != tc.reason {
					t.Errorf("%v", err)
				}
			case err != nil:
				t.Error(err)
			default:
				if _, ok := tree(t, got.Root)["two"]; !ok {
					t.Errorf("another image: %v", tree(t, got.Root))
				}
			}
		})
	}
}
