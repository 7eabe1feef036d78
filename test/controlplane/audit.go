package controlplane

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// Watches are recorded when they start, everything else when it is answered: each request is one line.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [watch]
  omitStages: [RequestReceived, ResponseComplete]
- level: Metadata
`

// Request is one request that the API server answered, a watch one that it began to answer.
type Request struct {
	At   time.Time
	Verb string // get, list, watch, create, update, patch, delete, deletecollection; others for paths outside the API

	Group, Resource, Subresource string // as in "apps", "deployments", "status"; empty outside the API
	Namespace, Name              string
	Path                         string // with the query

	User      string
	UserAgent string
	Code      int // HTTP status
}

// Requests are in the order in which they were answered.
type Requests []Request

// Mark is a point in the record of requests.
type Mark struct{ offset int64 }

// Mark marks now: RequestsSince gives what is answered after it. Options.Audit must be set.
func (c *ControlPlane) Mark() (Mark, error) {
	_, end, err := c.readAudit(Mark{})
	return end, err
}

// Requests are all requests answered until now, the control plane's own among them.
func (c *ControlPlane) Requests() (Requests, error) { return c.RequestsSince(Mark{}) }

// RequestsSince are the requests answered after the mark.
func (c *ControlPlane) RequestsSince(since Mark) (Requests, error) {
	requests, _, err := c.readAudit(since)
	return requests, err
}

// barriers number the requests by which a reader makes sure that the record has caught up with it.
var barriers atomic.Int64

// readAudit sends one request, waits until it is on record, and returns what is on record between since and it. A
// request whose answer arrived before the call is therefore in the result.
func (c *ControlPlane) readAudit(since Mark) (Requests, Mark, error) {
	if !c.opts.Audit {
		return nil, Mark{}, errors.New("read the record of requests: the control plane was started without Options.Audit")
	}
	barrier := fmt.Sprintf("/version?fettle-barrier=%d", barriers.Add(1))
	client, err := rest.HTTPClientFor(c.config)
	if err != nil {
		return nil, Mark{}, fmt.Errorf("read the record of requests: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := get(ctx, client, c.url()+barrier); err != nil {
		return nil, Mark{}, fmt.Errorf("read the record of requests: ask the API server: %w", err)
	}
	for {
		requests, end, found, err := readAuditUntil(c.auditLog(), since, barrier)
		if err != nil || found {
			return requests, end, err
		}
		select {
		case <-ctx.Done():
			return nil, Mark{}, fmt.Errorf("read the record of requests: the API server did not record our own: %w", ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// event is the part of an audit.k8s.io/v1 Event that is used.
type event struct {
	AuditID    string `json:"auditID"`
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	UserAgent  string `json:"userAgent"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	StageTimestamp time.Time `json:"stageTimestamp"`
}

func readAuditUntil(path string, since Mark, barrier string) (requests Requests, end Mark, found bool, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, Mark{}, false, fmt.Errorf("read the record of requests: %w", err)
	}
	defer file.Close()
	if _, err := file.Seek(since.offset, io.SeekStart); err != nil {
		return nil, Mark{}, false, fmt.Errorf("read the record of requests: %w", err)
	}
	seen := map[string]bool{} // a long-running request other than a watch (exec, logs) has two lines
	reader, offset := bufio.NewReaderSize(file, 1<<16), since.offset
	for {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) { // what is left is a line being written
			return requests, Mark{offset}, false, nil
		}
		if err != nil {
			return nil, Mark{}, false, fmt.Errorf("read the record of requests: %w", err)
		}
		offset += int64(len(line))
		var e event
		if err := json.Unmarshal(bytes.TrimSpace(line), &e); err != nil {
			return nil, Mark{}, false, fmt.Errorf("read the record of requests: %w", err)
		}
		if e.RequestURI == barrier {
			return requests, Mark{offset}, true, nil
		}
		if seen[e.AuditID] || strings.Contains(e.RequestURI, "fettle-barrier=") {
			continue
		}
		seen[e.AuditID] = true
		requests = append(requests, Request{
			At: e.StageTimestamp, Verb: e.Verb,
			Group: e.ObjectRef.APIGroup, Resource: e.ObjectRef.Resource, Subresource: e.ObjectRef.Subresource,
			Namespace: e.ObjectRef.Namespace, Name: e.ObjectRef.Name, Path: e.RequestURI,
			User: e.User.Username, UserAgent: e.UserAgent, Code: e.ResponseStatus.Code,
		})
	}
}

// Where are the requests that match.
func (r Requests) Where(match func(Request) bool) Requests {
	var out Requests
	for _, request := range r {
		if match(request) {
			out = append(out, request)
		}
	}
	return out
}

// By are the requests of one user.
func (r Requests) By(user string) Requests {
	return r.Where(func(request Request) bool { return request.User == user })
}

// Writes are the requests that can change something; reviews and tokens, which are created but not kept, are none.
func (r Requests) Writes() Requests {
	return r.Where(func(request Request) bool {
		switch request.Verb {
		case "create", "update", "patch", "delete", "deletecollection":
			return request.Group != "authorization.k8s.io" && request.Group != "authentication.k8s.io" && request.Subresource != "token"
		}
		return false
	})
}

// Counts counts requests by what they were: "patch nodes/status", "update leases", "get /readyz".
func (r Requests) Counts() map[string]int {
	counts := map[string]int{}
	for _, request := range r {
		counts[request.What()]++
	}
	return counts
}

// What names the kind of the request: verb and resource, with the subresource when there is one, else the path.
func (r Request) What() string {
	what := r.Resource
	switch {
	case what == "":
		what, _, _ = strings.Cut(r.Path, "?")
	case r.Subresource != "":
		what += "/" + r.Subresource
	}
	return r.Verb + " " + what
}

// String is a table of users, kinds of requests and their counts, for the message of a failed test.
func (r Requests) String() string {
	counts := map[string]int{}
	for _, request := range r {
		counts[request.User+"  "+request.What()]++
	}
	var out strings.Builder
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&out, "%6d  %s\n", counts[key], key)
	}
	return out.String()
}

func (c *ControlPlane) auditLog() string { return c.folder.Join("audit.log") }

func (c *ControlPlane) writeAuditPolicy() error {
	if err := os.WriteFile(c.folder.Join("audit-policy.yaml"), []byte(auditPolicy), 0o644); err != nil {
		return fmt.Errorf("write the audit policy: %w", err)
	}
	return nil
}
