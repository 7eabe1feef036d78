package metrics

import (
	"net/http"
	"strings"
)

// Transport counts the requests that go through another transport. It has the form that rest.Config.Wrap takes.
func (m *Metrics) Transport(next http.RoundTripper) http.RoundTripper {
	return &counting{metrics: m, next: next}
}

type counting struct {
	metrics *Metrics
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := c.next.RoundTrip(r)
	verb, resource := purpose(r)
	result := "unanswered"
	if err == nil {
		result = resultOf(r.Method, answer.StatusCode)
	}
	c.metrics.apiRequests.WithLabelValues(verb, resource, result).Inc()
	return answer, err
}

// WrappedRoundTripper lets client-go find the transport that is wrapped.
func (c *counting) WrappedRoundTripper() http.RoundTripper { return c.next }

func resultOf(method string, status int) string {
	switch {
	case status < 400:
		return "answered"
	case status == http.StatusConflict, status == http.StatusUnprocessableEntity && method == http.MethodPatch:
		return "conflict"
	case status == http.StatusTooManyRequests:
		return "throttled"
	case status < 500:
		return "refused"
	}
	return "failed"
}

// purpose gives verb and resource of a request by the API server's conventions: /api/v1/nodes/a/status is the
// subresource nodes/status. Paths that name no resource are discovery.
func purpose(r *http.Request) (verb, resource string) {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case path[0] == "api" && len(path) > 2:
		path = path[2:]
	case path[0] == "apis" && len(path) > 3:
		path = path[3:]
	default:
		return "get", "discovery"
	}
	if path[0] == "namespaces" && len(path) > 2 {
		path = path[2:]
	}
	resource = path[0]
	if len(path) > 2 {
		resource += "/" + path[2]
	}
	named := len(path) > 1
	switch r.Method {
	case http.MethodPost:
		verb = "create"
	case http.MethodPut:
		verb = "update"
	case http.MethodPatch:
		verb = "patch"
	case http.MethodDelete:
		verb = "delete"
		if !named {
			verb = "deletecollection"
		}
	default:
		switch {
		case strings.Contains(r.URL.RawQuery, "watch="):
			verb = "watch"
		case named:
			verb = "get"
		default:
			verb = "list"
		}
	}
	return verb, resource
}
