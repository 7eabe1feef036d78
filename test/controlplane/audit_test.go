package controlplane_test

import (
	"fmt"
	"maps"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fettle-dev/fettle/test/controlplane"
)

func TestRequestsAreCountedExactly(t *testing.T) {
	c := controlplane.ForTest(t, controlplane.Options{Audit: true})
	path, err := c.KubeconfigFor("counted", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	clients := clientsOf(t, path)
	if _, err := clients.CoreV1().Nodes().Create(t.Context(), node("before-the-mark"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	mark, err := c.Mark()
	if err != nil {
		t.Fatal(err)
	}

	const each = 50
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() {
			for i := range each {
				name := fmt.Sprintf("n-%d-%d", w, i)
				if _, err := clients.CoreV1().Nodes().Create(t.Context(), node(name), metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
				patch := []byte(`{"status":{"phase":"Running"}}`)
				if _, err := clients.CoreV1().Nodes().Patch(t.Context(), name, "application/strategic-merge-patch+json", patch, metav1.PatchOptions{}, "status"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	workers.Wait()
	if _, err := clients.CoreV1().Nodes().Get(t.Context(), "absent", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want NotFound", err)
	}
	watch, err := clients.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watch.Stop()

	all, err := c.RequestsSince(mark)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"create nodes": 4 * each, "patch nodes/status": 4 * each, "get nodes": 1, "watch nodes": 1}
	if got := all.By("counted").Counts(); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v\n%s", got, want, all)
	}
	if got := len(all.By("counted").Writes()); got != 8*each {
		t.Errorf("%d writes, want %d", got, 8*each)
	}
	missed := all.Where(func(r controlplane.Request) bool { return r.Code == 404 && r.Name == "absent" && r.Resource == "nodes" })
	if len(missed) != 1 || missed[0].User != "counted" || missed[0].Verb != "get" {
		t.Errorf("the request that found nothing is recorded as %+v", missed)
	}
	whole, err := c.Requests()
	if err != nil {
		t.Fatal(err)
	}
	if got := whole.By("counted").Counts()["create nodes"]; got != 4*each+1 {
		t.Errorf("%d creations since the start, want %d", got, 4*each+1)
	}
}

func TestRequestsNeedAudit(t *testing.T) {
	c := controlplane.ForTest(t, controlplane.Options{})
	if _, err := c.Mark(); err == nil {
		t.Error("counted requests that nobody recorded")
	}
}
