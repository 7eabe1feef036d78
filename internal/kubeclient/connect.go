package kubeclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// Bounds of the search for an API server.
const (
	firstWait = time.Second
	// longestWait is how late a repaired kubeconfig or a returned API server is noticed before the agent has joined.
	longestWait = 10 * time.Second
	// answerTimeout bounds one try of one candidate.
	answerTimeout = 5 * time.Second
)

// Connector finds an API server that answers.
type Connector struct {
	Source Source
	// NodeName is asked for to find out whether a candidate answers and knows us.
	NodeName  string
	UserAgent string
	// Authenticate, if set, puts an identity in place of the one that a candidate was found with.
	Authenticate func(*rest.Config) *rest.Config
	Log          *slog.Logger

	tried map[string]*Client // by fingerprint, so that a search of hours does not make a transport for every try
}

// Wait searches until a candidate answers, and returns it. It says what is wrong once, and again only when something
// else is. The error is ErrStandalone, or that of the context.
func (c *Connector) Wait(ctx context.Context) (Candidate, error) {
	said := ""
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		found, err := c.Try(ctx)
		if err == nil {
			c.tried = nil
			return found, nil
		}
		if errors.Is(err, ErrStandalone) {
			return Candidate{}, err
		}
		if ctx.Err() != nil {
			return Candidate{}, ctx.Err()
		}
		if shape := withoutNumbers(err.Error()); shape != said {
			said = shape
			c.Log.Warn("no API server yet; checks go on, nothing is published, the same is tried again until it works",
				"error", err, "retryEverySeconds", longestWait.Seconds())
		}
		select {
		case <-ctx.Done():
			return Candidate{}, ctx.Err()
		case <-time.After(wait):
		}
	}
}

// withoutNumbers makes two errors equal that differ in a port or a count.
func withoutNumbers(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, s)
}

// Try looks for a candidate that answers, once.
func (c *Connector) Try(ctx context.Context) (Candidate, error) {
	candidates, err := c.Source.Candidates()
	if err != nil {
		return Candidate{}, err
	}
	var failures []error
	for _, candidate := range candidates {
		if c.Authenticate != nil {
			candidate.Config = c.Authenticate(candidate.Config)
		}
		if err := c.answers(ctx, candidate); err != nil {
			failures = append(failures, fmt.Errorf("%s (%s): %w", candidate.Origin, candidate.Config.Host, err))
			continue
		}
		return candidate, nil
	}
	return Candidate{}, errors.Join(failures...)
}

// answers asks for our Node. That it does not exist yet, or may not be read, is an answer; that we are not who we claim
// to be is not.
func (c *Connector) answers(ctx context.Context, candidate Candidate) error {
	client, ok := c.tried[candidate.Fingerprint]
	if !ok {
		var err error
		client, err = New(candidate.Config, Settings{
			UserAgent: c.UserAgent, CallTimeout: answerTimeout, CallsPerSecond: 5, Burst: 5,
		})
		if err != nil {
			return err
		}
		if c.tried == nil {
			c.tried = map[string]*Client{}
		}
		c.tried[candidate.Fingerprint] = client
	}
	defer client.DropConnections()
	_, err := client.Node(ctx, c.NodeName)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsTooManyRequests(err) {
		return nil
	}
	return err
}

// Changed reports whether the files behind a candidate are no longer what they were, so that it is worth connecting
// anew. Files that cannot be read now, or are half written, are no reason to give up what works.
func (s Source) Changed(in Candidate) bool {
	candidates, err := s.Candidates()
	if err != nil {
		return false
	}
	for _, c := range candidates {
		if c.Fingerprint == in.Fingerprint {
			return false
		}
	}
	return true
}
