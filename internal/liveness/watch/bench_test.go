package watch

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fettle-dev/fettle/internal/fleet"
	"github.com/fettle-dev/fettle/internal/liveness"
)

// BenchmarkPass is what a look at all agents costs, which is taken once a second.
func BenchmarkPass(b *testing.B) {
	for _, agents := range []int{1000, 5000} {
		b.Run(fmt.Sprint(agents), func(b *testing.B) {
			w := populated(agents)
			for b.Loop() {
				w.pass(b.Context(), time.Now())
			}
		})
	}
}

// BenchmarkBeat is what one renewal of a lease costs.
func BenchmarkBeat(b *testing.B) {
	w := populated(5000)
	lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: new("a"), LeaseDurationSeconds: new(int32(40))}}
	for i := 0; b.Loop(); i++ {
		lease.Spec.RenewTime = new(metav1.NowMicro())
		w.see(sighting{node: name(i % 5000), lease: lease}, time.Now())
	}
}

func populated(agents int) *Watch {
	w := New(Options{
		Limits:  liveness.Limits{Grace: time.Hour, StartupGrace: time.Hour},
		Policy:  fleet.Policy{Limits: fleet.DefaultLimits()},
		Changed: func(string) {}, Log: logr.Discard(),
	})
	w.canary = newCanary(time.Now(), time.Hour)
	for i := range agents {
		w.see(sighting{node: name(i), host: reportedHost(name(i))}, time.Now())
	}
	return w
}
