package credential

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/fettle-dev/fettle/internal/statefile"
)

// Requester asks the API server for a token, with a deadline of its own.
type Requester interface {
	CreateToken(ctx context.Context, namespace, serviceAccount string, tr *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)
}

// Options of a Renewer.
type Options struct {
	// StateDir keeps the newest token over restarts. Empty: none does.
	StateDir string
	// Node is the node that the agent speaks for. A token of another is used, and said to be; see Status.Foreign.
	Node string
	Log  *slog.Logger
	// Now is time.Now when nil, Spread, which gives numbers in [0, 1), a source of chance.
	Now    func() time.Time
	Spread func() float64
}

// Renewer holds the agent's token and renews it. It is made once for the life of the process.
type Renewer struct {
	o Options
	// due is told when there is something new to wait for.
	due chan struct{}

	mu        sync.Mutex
	delivered delivery
	current   *token // in use; nil: there is none to renew
	renewed   *token // the newest that was renewed, by this process or one before; nil: none
	recalled  bool   // whether the state folder was looked into
	status    Status
	failures  int // renewals that failed in a row
	retryAt   time.Time
	complaint string // the failure that was logged last, so that each is said once
}

// token is one with its claims and when it is to be renewed.
type token struct {
	text   string
	claims Claims
	due    time.Time
}

// Status is how it stands with the agent's token.
type Status struct {
	// Renews is true while the agent renews its token itself. Else Why says why not; ErrPodToken is no fault.
	Renews bool
	Why    error
	// Node is the node that the token in use is bound to; empty while Renews is false.
	Node string
	// ExpiresAt and RenewAt are of the token in use, the former by the API server's clock.
	ExpiresAt, RenewAt time.Time
	// LastRenewal is when this process last got one; zero: not yet.
	LastRenewal time.Time
	// LastError is why the last try to renew failed; empty when it did not.
	LastError string
	// Foreign says that the token in use is bound to another node than the agent speaks for, and what to do. Empty: it is
	// bound to this one.
	Foreign string
	// Refused says that the API server does not take the token in use, and what to do. Empty: it takes it, or was not
	// asked.
	Refused string
}

// tokenFormat is the number of the format of keptToken on disk.
const tokenFormat = 1

// keptToken is the newest token that was renewed. A crash leaves the one before or this one; both are good until they
// expire.
type keptToken struct {
	Token string `json:"token"`
}

func (o Options) tokenPath() string { return filepath.Join(o.StateDir, "token.json") }

// New makes a Renewer that holds no token yet; see Use.
func New(o Options) *Renewer {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Spread == nil {
		o.Spread = rand.Float64
	}
	return &Renewer{o: o, due: make(chan struct{}, 1), status: Status{Why: errNoToken}}
}

// Status is how it stands now.
func (r *Renewer) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// longestSleep is how late a wall clock that was set, or a suspended machine, is noticed.
const longestSleep = 10 * time.Minute

// Run renews the token in use whenever that is due, until the context ends. It holds up nobody: the token in use stays
// in use until there is a newer one.
func (r *Renewer) Run(ctx context.Context, api Requester) {
	for ctx.Err() == nil {
		next, any := r.next()
		if any && reached(r.o.Now(), next) {
			r.renew(ctx, api)
			continue
		}
		sleep := longestSleep
		if any {
			sleep = min(max(next.Sub(r.o.Now()), time.Millisecond), longestSleep)
		}
		timer := time.NewTimer(sleep)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-r.due:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// next is when to renew, or to try again.
func (r *Renewer) next() (at time.Time, any bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current == nil {
		return time.Time{}, false
	}
	if r.failures > 0 {
		return r.retryAt, true
	}
	return r.current.due, true
}

// Request is what Run asks for when it is due, for those who want to know beforehand whether it is granted. ok is false
// when there is nothing to renew.
func (r *Renewer) Request() (namespace, serviceAccount string, tr *authenticationv1.TokenRequest, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current == nil {
		return "", "", nil, false
	}
	c := r.current.claims
	return c.Namespace, c.ServiceAccount, request(c), true
}

func (r *Renewer) renew(ctx context.Context, api Requester) {
	r.mu.Lock()
	from := r.current
	r.mu.Unlock()
	answer, err := api.CreateToken(ctx, from.claims.Namespace, from.claims.ServiceAccount, request(from.claims))
	if ctx.Err() != nil {
		return
	}
	var got *token
	if err == nil {
		got, err = r.accept(answer.Status.Token, from.claims.Holder)
	}
	if err != nil {
		r.failed(err)
		return
	}
	r.took(from, got)
	if err := r.keep(got.text); err != nil {
		r.o.Log.Warn("the agent's new token is in use, but not kept over a restart", "error", err)
	}
}

// accept looks whether what the API server gave is what was asked for.
func (r *Renewer) accept(text string, holder Holder) (*token, error) {
	claims, err := ReadClaims(text)
	if err == nil {
		err = claims.renewable()
	}
	if err == nil && claims.Holder != holder {
		err = fmt.Errorf("it is of %+v, not %+v", claims.Holder, holder)
	}
	if err != nil {
		return nil, fmt.Errorf("the token that the API server gave: %w", err)
	}
	return &token{text: text, claims: claims, due: r.o.Now().Add(wait(claims, r.o.Spread()))}, nil
}

func (r *Renewer) failed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures++
	r.retryAt = r.o.Now().Add(retryAfter(r.failures, r.o.Spread()))
	r.status.LastError = err.Error()
	if r.complaint != err.Error() {
		r.complaint = err.Error()
		r.o.Log.Warn("the agent's token could not be renewed; it is tried again", "error", err, "expiresAt", r.status.ExpiresAt)
	}
}

// took puts a renewed token to use in place of the one it was got with, unless that was replaced meanwhile by one that
// was delivered.
func (r *Renewer) took(from, got *token) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.renewed = got
	r.status.LastRenewal, r.status.LastError = r.o.Now().Round(0), ""
	if r.current != from {
		return
	}
	r.use(got)
	r.o.Log.Info("renewed the agent's token", "node", got.claims.Node, "expiresAt", got.claims.Expires, "renewAt", r.status.RenewAt)
}

// use makes a token the one in use. The caller holds the lock.
func (r *Renewer) use(t *token) {
	r.current, r.failures, r.complaint = t, 0, ""
	r.status.Renews, r.status.Why, r.status.Refused, r.status.Node = true, nil, "", t.claims.Node
	r.status.Foreign = foreign(t.claims.Holder, r.o.Node)
	r.status.ExpiresAt, r.status.RenewAt = t.claims.Expires, t.due.Round(0)
	select {
	case r.due <- struct{}{}:
	default: // it is told already
	}
}

func (r *Renewer) keep(text string) error {
	if r.o.StateDir == "" {
		return nil
	}
	return statefile.Write(r.o.tokenPath(), tokenFormat, keptToken{Token: text})
}

// recall reads the token that a process before this one kept, once. The caller holds the lock.
func (r *Renewer) recall() {
	if r.recalled || r.o.StateDir == "" {
		return
	}
	r.recalled = true
	var kept keptToken
	err := statefile.Read(r.o.tokenPath(), tokenFormat, &kept)
	if statefile.Missing(err) {
		return
	}
	var claims Claims
	if err == nil {
		claims, err = ReadClaims(strings.TrimSpace(kept.Token))
	}
	if err == nil {
		err = claims.renewable()
	}
	if err != nil {
		r.o.Log.Warn("the token that was kept cannot be used; the one that was delivered is", "error", err)
		return
	}
	r.renewed = &token{text: kept.Token, claims: claims, due: Next(r.o.Now(), claims, r.o.Spread())}
}
