package readiness

import (
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Failure is why the taints of a node could not be written.
type Failure struct {
	Reason, Message string
	At              time.Time
	// Rules on whose account they should have been.
	Rules []types.UID
}

// Failures holds the nodes whose last write failed. It may be used concurrently.
type Failures struct {
	mu     sync.Mutex
	byNode map[string]Failure // guarded by mu
}

// Set records a failed write.
func (f *Failures) Set(node string, err error, rules []types.UID, at time.Time) {
	reason := string(apierrors.ReasonForError(err))
	if reason == string(metav1.StatusReasonUnknown) {
		reason = "WriteFailed"
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byNode == nil {
		f.byNode = map[string]Failure{}
	}
	f.byNode[node] = Failure{Reason: reason, Message: capped(err.Error(), maxFailureMessage), At: at, Rules: rules}
}

// Clear records that the node is as it should be, or gone. It reports whether it had failed before.
func (f *Failures) Clear(node string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, had := f.byNode[node]
	delete(f.byNode, node)
	return had
}

// of returns the failure of a node on account of a rule.
func (f *Failures) of(node string, rule types.UID) (Failure, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	failure, failed := f.byNode[node]
	return failure, failed && slices.Contains(failure.Rules, rule)
}
