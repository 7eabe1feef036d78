package nodewriter

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fettle-dev/fettle/test/controlplane"
)

// taint is a decision that wants one more taint, and a record of it.
func taint(calls *int) func(*corev1.Node) Change {
	return func(n *corev1.Node) Change {
		*calls++
		for _, t := range n.Spec.Taints {
			if t.Key == ours.Key {
				return Change{}
			}
		}
		return Change{Taints: append(n.DeepCopy().Spec.Taints, ours), TaintsChanged: true, Annotations: map[string]*string{"fettle.dev/taints": value("x")}}
	}
}

// TestWriter writes to a real API server. Every case reads a node, lets it change, and writes what was decided from the
// node as it was.
func TestWriter(t *testing.T) {
	cp := controlplane.ForTest(t, controlplane.Options{})
	api, err := client.New(cp.Config(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	edit := func(t *testing.T, name string, change func(*corev1.Node)) {
		t.Helper()
		n := &corev1.Node{}
		if err := api.Get(t.Context(), client.ObjectKey{Name: name}, n); err != nil {
			t.Fatal(err)
		}
		change(n)
		if err := api.Update(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	bare := func(n *corev1.Node) { n.Annotations, n.Spec.Taints = nil, nil }

	for _, tc := range []struct {
		name      string
		before    func(*corev1.Node) // makes the node as it is read
		meanwhile func(t *testing.T, name string)
		calls     int // of the decision
		want      []string
		others    map[string]string // annotations of others that must be there
	}{
		{name: "bare", before: bare, calls: 1, want: []string{ours.Key}},
		{name: "others", before: func(n *corev1.Node) { n.Annotations = map[string]string{"a": "b"} }, calls: 1,
			want: []string{foreign.Key, ours.Key}, others: map[string]string{"a": "b"}},
		{name: "overtaken-taint", before: bare, calls: 2, want: []string{"dedicated", ours.Key},
			meanwhile: func(t *testing.T, name string) {
				edit(t, name, func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "dedicated", Effect: "NoExecute"}} })
			}},
		{name: "overtaken-annotation", before: bare, calls: 2, want: []string{ours.Key}, others: map[string]string{"a": "b"},
			meanwhile: func(t *testing.T, name string) {
				edit(t, name, func(n *corev1.Node) { n.Annotations = map[string]string{"a": "b"} })
			}},
		{name: "done-already", before: bare, calls: 2, want: []string{ours.Key},
			meanwhile: func(t *testing.T, name string) {
				edit(t, name, func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{ours} })
			}},
		{name: "unrelated", before: bare, calls: 1, want: []string{ours.Key},
			meanwhile: func(t *testing.T, name string) {
				edit(t, name, func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} })
			}},
		{name: "recreated", before: bare, calls: 2, want: []string{foreign.Key, ours.Key},
			meanwhile: func(t *testing.T, name string) {
				if err := api.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
					t.Fatal(err)
				}
				if err := api.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
					t.Fatal(err)
				}
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := New(api, api)
			if err := api.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: tc.name}}); err != nil {
				t.Fatal(err)
			}
			edit(t, tc.name, tc.before)
			read, err := w.Live(t.Context(), tc.name)
			if err != nil {
				t.Fatal(err)
			}
			if tc.meanwhile != nil {
				tc.meanwhile(t, tc.name)
			}
			calls := 0
			written, err := w.Write(t.Context(), read, taint(&calls))
			if err != nil {
				t.Fatal(err)
			}
			if calls != tc.calls {
				t.Errorf("decided %d times, want %d", calls, tc.calls)
			}
			live := &corev1.Node{}
			if err := api.Get(t.Context(), client.ObjectKey{Name: tc.name}, live); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, taint := range live.Spec.Taints {
				got = append(got, taint.Key)
			}
			if strings.Join(got, " ") != strings.Join(tc.want, " ") {
				t.Errorf("taints %v, want %v", got, tc.want)
			}
			for key, want := range tc.others {
				if live.Annotations[key] != want {
					t.Errorf("annotation %s of others: %q", key, live.Annotations[key])
				}
			}
			if latest := w.Latest(read); latest.ResourceVersion != written.ResourceVersion || latest.ResourceVersion != live.ResourceVersion {
				t.Errorf("latest is %s, written %s, live %s", latest.ResourceVersion, written.ResourceVersion, live.ResourceVersion)
			}
			if latest := w.Latest(live); latest != live {
				t.Error("a cache that has caught up is not believed")
			}
		})
	}

	t.Run("a write that is refused for what it says is tried twice, and its reason is told", func(t *testing.T) {
		w := New(api, api)
		read, err := w.Live(t.Context(), "bare")
		if err != nil {
			t.Fatal(err)
		}
		calls := 0
		_, err = w.Write(t.Context(), read, func(*corev1.Node) Change {
			calls++
			return Change{Taints: []corev1.Taint{{Key: "a b", Effect: "NoSchedule"}}, TaintsChanged: true}
		})
		if !apierrors.IsInvalid(err) || calls != 2 || !strings.Contains(err.Error(), "a b") {
			t.Errorf("%d tries: %v", calls, err)
		}
	})
	t.Run("a node that is gone is no fault", func(t *testing.T) {
		calls := 0
		if _, err := New(api, api).Write(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gone", UID: "u"}}, taint(&calls)); err != nil {
			t.Error(err)
		}
	})
	t.Run("what was read live is the latest until a cache has caught up", func(t *testing.T) {
		w := New(api, api)
		cached, err := w.Live(t.Context(), "others")
		if err != nil {
			t.Fatal(err)
		}
		edit(t, "others", func(n *corev1.Node) { n.Labels = map[string]string{"live": "yes"} })
		live, err := w.Live(t.Context(), "others")
		if err != nil || live.Labels["live"] != "yes" {
			t.Fatalf("%v: %v", live.Labels, err)
		}
		if w.Latest(cached) != live {
			t.Error("what the cache has is believed, though it is older")
		}
	})
	t.Run("an end of the context ends the tries", func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		read := nodeWith(nil)
		read.Name = "bare"
		_, err := New(api, api).Write(ctx, read, func(*corev1.Node) Change {
			stop()
			return Change{TaintsChanged: true}
		})
		if err == nil || apierrors.IsInvalid(err) {
			t.Errorf("%v", err)
		}
	})
	t.Run("Unknown is written only to the node as it was read", func(t *testing.T) {
		w := New(api, api)
		n := &corev1.Node{}
		if err := api.Get(t.Context(), client.ObjectKey{Name: "others"}, n); err != nil {
			t.Fatal(err)
		}
		n.Status.Conditions = []corev1.NodeCondition{{Type: "A", Status: "True", Reason: "OK"}, {Type: "B", Status: "True", Reason: "OK"}}
		if err := api.Status().Update(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		read, err := w.Live(t.Context(), "others")
		if err != nil {
			t.Fatal(err)
		}
		edit(t, "others", func(n *corev1.Node) { n.Labels = map[string]string{"x": "y"} })
		if _, err := w.SetUnknown(t.Context(), read, []string{"A", "C"}, "AgentSilent", "m", time.Now()); !apierrors.IsConflict(err) {
			t.Errorf("an old node: %v", err)
		}
		if read, err = w.Live(t.Context(), "others"); err != nil {
			t.Fatal(err)
		}
		written, err := w.SetUnknown(t.Context(), read, []string{"A", "C"}, "AgentSilent", "m", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []corev1.NodeCondition{{Type: "A", Status: "Unknown", Reason: "AgentSilent"}, {Type: "B", Status: "True"}} {
			if len(written.Status.Conditions) != 2 || written.Status.Conditions[i] != want {
				t.Errorf("conditions %+v", written.Status.Conditions)
			}
		}
	})
}
