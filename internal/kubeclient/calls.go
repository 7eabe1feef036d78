package kubeclient

import (
	"net/http"
	"sync/atomic"
)

// Calls counts what became of the calls of all clients that were given it. A watch is one call. The zero value is ready.
type Calls struct {
	answered, refused, throttled, failed, unanswered atomic.Uint64
}

// CallCounts are calls by what became of them.
type CallCounts struct {
	// Answered as asked.
	Answered uint64
	// Refused with a status from 400 to 499 other than 429; conflicts and objects that do not exist are among them.
	Refused uint64
	// Throttled with status 429.
	Throttled uint64
	// Failed on the server's side, with a status from 500.
	Failed uint64
	// Unanswered for want of a connection or of time.
	Unanswered uint64
}

// Counts says how many calls there were.
func (c *Calls) Counts() CallCounts {
	return CallCounts{
		Answered: c.answered.Load(), Refused: c.refused.Load(), Throttled: c.throttled.Load(),
		Failed: c.failed.Load(), Unanswered: c.unanswered.Load(),
	}
}

// over counts the calls that go over a transport.
func (c *Calls) over(transport http.RoundTripper) http.RoundTripper {
	return counted{calls: c, RoundTripper: transport}
}

type counted struct {
	calls *Calls
	http.RoundTripper
}

// RoundTrip makes the call and counts it.
func (c counted) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.RoundTripper.RoundTrip(request)
	switch {
	case err != nil:
		c.calls.unanswered.Add(1)
	case response.StatusCode == http.StatusTooManyRequests:
		c.calls.throttled.Add(1)
	case response.StatusCode >= http.StatusInternalServerError:
		c.calls.failed.Add(1)
	case response.StatusCode >= http.StatusBadRequest:
		c.calls.refused.Add(1)
	default:
		c.calls.answered.Add(1)
	}
	return response, err
}

// WrappedRoundTripper is how client-go finds the transport below.
func (c counted) WrappedRoundTripper() http.RoundTripper { return c.RoundTripper }
