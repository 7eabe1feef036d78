package nodewriter

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTrimmedNodesShareNames(t *testing.T) {
	// decoded gives a node whose strings are its own, as a decoder makes them.
	decoded := func() *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{strings.Clone("pool"): "a"}},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeConditionType(strings.Clone("example.com/A")), Status: "True"}}},
		}
	}
	a, b := trimmed(decoded()), trimmed(decoded())
	if x, y := a.Status.Conditions[0].Type, b.Status.Conditions[0].Type; unsafe.StringData(string(x)) != unsafe.StringData(string(y)) {
		t.Error("two nodes hold the type of a condition twice")
	}
	key := func(n *corev1.Node) *byte {
		for key := range n.Labels {
			return unsafe.StringData(key)
		}
		return nil
	}
	if key(a) != key(b) {
		t.Error("two nodes hold the key of a label twice")
	}
	if !maps.Equal(a.Labels, map[string]string{"pool": "a"}) || a.Status.Conditions[0].Type != "example.com/A" {
		t.Errorf("trimmed to %v, %v", a.Labels, a.Status.Conditions)
	}
	if without := trimmed(&corev1.Node{}); without.Labels != nil || without.Status.Conditions != nil {
		t.Errorf("trimmed to %v, %v", without.Labels, without.Status.Conditions)
	}
}

func TestNamesAreBounded(t *testing.T) {
	var n names
	var working sync.WaitGroup
	for range 4 {
		working.Go(func() {
			for i := range maxNames + 100 {
				if s := fmt.Sprint(i); n.one(s) != s {
					t.Errorf("%s came back as something else", s)
				}
			}
		})
	}
	working.Wait()
	if len(n.held) != maxNames {
		t.Errorf("%d names are held, want %d", len(n.held), maxNames)
	}
}
