package gates

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"pgregory.net/rapid"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
)

// TestPodsByNode: whatever comes, changes, moves, goes and is listed anew, the pods of a node are those that are there.
func TestPodsByNode(t *testing.T) {
	ours := []metav1.OwnerReference{{UID: "set", Controller: new(true)}}
	rapid.Check(t, func(t *rapid.T) {
		g := newDaemonSetGate(readinessv1alpha1.DaemonSetOnNode{Namespace: "a", Name: "b"}, Options{
			NodeChanged: func(string) {}, RulesChanged: func([]types.UID) {}, Reworded: func() {},
		}, nil)
		m := g.newMade("set", labels.Everything())
		pods := map[string]*corev1.Pod{} // as the API server has them

		draw := func() *corev1.Pod {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Name:   rapid.SampledFrom([]string{"p", "q", "r"}).Draw(t, "name"),
				Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: rapid.SampledFrom([]string{"old", "new"}).Draw(t, "hash")},
			}}
			if rapid.IntRange(0, 4).Draw(t, "owned") > 0 {
				p.OwnerReferences = ours
			}
			p.Spec.NodeName = rapid.SampledFrom([]string{"", "n1", "n2"}).Draw(t, "node")
			return p
		}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(*rapid.T) {
				p := draw()
				pods[p.Name] = p
				_ = m.pods.Update(p)
			},
			"delete": func(*rapid.T) {
				p := draw()
				delete(pods, p.Name)
				_ = m.pods.Delete(p)
			},
			"list": func(*rapid.T) {
				pods = map[string]*corev1.Pod{}
				for range rapid.IntRange(0, 3).Draw(t, "pods") {
					p := draw()
					pods[p.Name] = p
				}
				var list []any
				for _, p := range pods {
					list = append(list, p)
				}
				_ = m.pods.Replace(list, "")
			},
			"": func(t *rapid.T) {
				want := map[string][]pod{}
				for _, p := range pods {
					if kept, ok := podsOf("set")(p); ok {
						want[kept.node] = append(want[kept.node], kept)
					}
				}
				if got, want := ordered(m.byNode), ordered(want); got != want {
					t.Fatalf("by node %s, want %s", got, want)
				}
			},
		})
	})
}

func ordered(byNode map[string][]pod) string {
	var out string
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		pods := slices.SortedFunc(slices.Values(byNode[node]), func(a, b pod) int { return cmp.Compare(a.name, b.name) })
		out += fmt.Sprintf("%s %+v; ", node, pods)
	}
	return out
}
