package controlplane_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fettle-dev/fettle/test/controlplane"
)

func TestWholeControlPlaneStarts(t *testing.T) {
	began := time.Now()
	c := controlplane.ForTest(t, controlplane.Options{ControllerManager: true, Scheduler: true})
	t.Logf("ready after %v", time.Since(began).Round(10*time.Millisecond))
	clients := clientset(t, c)

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "waits", Namespace: "default"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	if _, err := clients.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatalf("a pod with the namespace's default ServiceAccount: %v", err)
	}
	await(t, "the scheduler looks at the pod and finds no node", func(ctx context.Context) bool {
		got, err := clients.CoreV1().Pods("default").Get(ctx, "waits", metav1.GetOptions{})
		return err == nil && len(got.Status.Conditions) > 0 && got.Status.Conditions[0].Reason == corev1.PodReasonUnschedulable
	})
}

func clientset(t *testing.T, c *controlplane.ControlPlane) *kubernetes.Clientset {
	t.Helper()
	clients, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	return clients
}

func await(t *testing.T, what string, holds func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !holds(ctx) {
		select {
		case <-ctx.Done():
			t.Fatalf("did not come about: %s", what)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
