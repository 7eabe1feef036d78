package heartbeat

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fettle-dev/fettle/internal/health"
)

// kind of failure, by what is to be done about it.
type kind int

const (
	// outdated : what we knew was not what is; read again and repeat at once.
	outdated kind = iota
	// unreachable : no answer; repeat, over a new connection.
	unreachable
	// throttled : an answer that asks for a wait; repeat after it, if there is time before the next beat.
	throttled
	// refused : an answer that will not change in a moment; wait for the next beat.
	refused
)

func classify(err error) kind {
	var missing errNoNamespace
	switch {
	case errors.As(err, &missing):
		return refused
	case errors.Is(err, errVanished), apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		return outdated
	case apierrors.IsTooManyRequests(err):
		return throttled
	case apierrors.IsInternalError(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsServiceUnavailable(err):
		return unreachable
	case apierrors.ReasonForError(err) != "":
		return refused
	default:
		return unreachable
	}
}

// askedFor is the wait that an answer asks for; 0 when it asks for none.
func askedFor(err error) time.Duration {
	if s, ok := apierrors.SuggestsClientDelay(err); ok {
		return time.Duration(s) * time.Second
	}
	return 0
}

// faultOf says what is wrong in words that are the same at every beat: an error of a connection names its port.
func faultOf(err error) string {
	switch {
	case apierrors.ReasonForError(err) != "":
		return health.Normalise(err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return "the API server does not answer in time"
	default:
		return "the API server cannot be reached"
	}
}

// impairedAfter is how many intervals the Lease must be overdue before the fault is called one of the Lease alone.
const impairedAfter = 2

// impairment tells a Lease that cannot be renewed from an API server that is away. The Lease alone is at fault when two
// beats in a row fail though the API server answered in between: with a refusal, or when it was asked for the Node. One
// such beat proves nothing, since an API server that comes back refuses much in its first moments.
type impairment struct {
	// answered : the API server did, at the last failed beat or after it.
	answered bool
}

// failed folds in a beat that failed, overdue after the last one that was stored. asks is called to find out whether the
// API server answers at all.
func (i *impairment) failed(k kind, overdue, interval time.Duration, asks func() bool) (impaired bool) {
	impaired = i.answered && overdue >= impairedAfter*interval
	switch {
	case k != unreachable:
		i.answered = true
	case overdue >= interval:
		i.answered = asks()
	default:
		i.answered = false
	}
	return impaired
}

// ended : a beat came to something else than failing.
func (i *impairment) ended() { i.answered = false }

// apiAnswers asks for the Node, with little time, since the next beat is due.
func (h *Heart) apiAnswers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, h.o.Interval/4)
	defer cancel()
	_, err := h.api.Node(ctx, h.o.Node)
	return err == nil || apierrors.ReasonForError(err) != "" && classify(err) != unreachable
}

// failed is the status after a beat that could not be stored.
func (h *Heart) failed(ctx context.Context, err error) Status {
	overdue := time.Since(h.board.lastOr(h.began))
	impaired := h.impairment.failed(classify(err), overdue, h.o.Interval, func() bool { return h.apiAnswers(ctx) })
	return Status{State: Failing, Detail: err.Error(), Fault: faultOf(err), Impaired: impaired}
}
