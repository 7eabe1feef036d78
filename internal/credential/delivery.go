package credential

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// readEvery is how late a token that is delivered into the file that the kubeconfig names is noticed. client-go reads
// such a file as often.
const readEvery = time.Minute

// delivery is where the administrator's token comes from.
type delivery struct {
	// path is the kubeconfig's tokenFile. Empty: the token stands in the kubeconfig, which others watch.
	path string
	// text is the token as it was last read, and readAt when that was.
	text   string
	readAt time.Time
}

// Use gives a configuration that authenticates by the newest token there is, whenever it is used. A configuration that
// authenticates by anything that the agent does not renew comes back as it is; Status says why. It may be called again
// with the same configuration or a changed one.
func (r *Renewer) Use(config *rest.Config) *rest.Config {
	d := delivery{path: config.BearerTokenFile, text: config.BearerToken}
	if d.path != "" {
		content, err := os.ReadFile(d.path)
		if err != nil {
			r.none(fmt.Errorf("the token that was delivered cannot be read: %w", err))
			return config
		}
		d.text = string(content)
	}
	if d.text = strings.TrimSpace(d.text); d.text == "" {
		r.none(errNoToken)
		return config
	}
	if err := r.deliver(d); err != nil {
		r.none(fmt.Errorf("of the token that was delivered: %w", err))
		return config
	}
	own := rest.CopyConfig(config)
	own.BearerToken, own.BearerTokenFile = "", ""
	own.Wrap(func(next http.RoundTripper) http.RoundTripper { return &bearer{r: r, next: next} })
	return own
}

var errNoToken = errors.New("the agent does not authenticate by a token")

// none says that there is no token to renew.
func (r *Renewer) none(why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current, r.delivered = nil, delivery{}
	r.status = Status{Why: why, LastRenewal: r.status.LastRenewal}
}

// deliver chooses between a token that was delivered and the newest that was renewed. The error says why the agent does
// not renew it.
func (r *Renewer) deliver(d delivery) error {
	claims, err := ReadClaims(d.text)
	if err == nil {
		err = claims.renewable()
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.o.Now()
	d.readAt = now
	again := r.current != nil && d.text == r.delivered.text
	r.delivered = d
	if again {
		return nil
	}
	r.recall()
	chosen := &token{text: d.text, claims: claims, due: Next(now, claims, r.o.Spread())}
	if r.renewed != nil && !deliveredWins(claims, r.renewed.claims) {
		chosen = r.renewed
	}
	r.use(chosen)
	if r.status.Foreign != "" {
		r.o.Log.Error(r.status.Foreign, "tokenOf", claims.Node, "node", r.o.Node)
	}
	if now.After(chosen.claims.Expires) {
		r.o.Log.Warn("by this machine's clock the agent's token has expired; it is tried all the same. If the API server refuses it, "+
			chosen.claims.advice(), "expiredAt", chosen.claims.Expires)
	}
	return nil
}

// foreign says what is wrong with a token of that holder for an agent of node; empty: nothing is.
func foreign(h Holder, node string) string {
	if node == "" || h.Node == node {
		return ""
	}
	wanted := h
	wanted.Node = node
	return fmt.Sprintf("the agent's token is bound to node %s and the agent speaks for node %s, so the API server refuses what it writes; "+
		"correct nodeName and restart the agent, or %s", h.Node, node, wanted.advice())
}

// inUse is the token to authenticate by now. It looks for a newly delivered one now and then.
func (r *Renewer) inUse() *token {
	r.mu.Lock()
	d, now := r.delivered, r.o.Now()
	look := d.path != "" && now.Sub(d.readAt).Abs() >= readEvery
	if look {
		r.delivered.readAt = now
	}
	r.mu.Unlock()
	if look {
		r.lookAt(d)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current
}

// lookAt reads the file of a delivery. What cannot be read or renewed is no reason to give up what is in use.
func (r *Renewer) lookAt(d delivery) {
	content, err := os.ReadFile(d.path)
	if text := strings.TrimSpace(string(content)); err == nil && text != d.text {
		d.text = text
		err = r.deliver(d)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && err.Error() != r.complaint {
		r.complaint = err.Error()
		r.o.Log.Warn("a token was delivered that the agent does not use", "file", d.path, "error", err)
	}
}

// refused notes that the API server does not take a token, and says so once for each.
func (r *Renewer) refused(t *token) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delivered.readAt = time.Time{} // look at once whether another was delivered
	if t != r.current || r.status.Refused != "" {
		return
	}
	why := "its Node or its ServiceAccount was deleted, or the cluster signs by other keys now"
	if r.o.Now().After(t.claims.Expires) {
		why = "it expired at " + t.claims.Expires.UTC().Format(time.RFC3339)
	}
	r.status.Refused = "the API server refuses the agent's token: " + why + "; " + t.claims.advice()
	r.o.Log.Error(r.status.Refused, "node", t.claims.Node, "expiresAt", t.claims.Expires)
}

// accepted notes that the API server takes a token again.
func (r *Renewer) accepted(t *token) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t == r.current {
		r.status.Refused = ""
	}
}

// bearer puts the token in use on every request.
type bearer struct {
	r    *Renewer
	next http.RoundTripper
}

func (b *bearer) RoundTrip(request *http.Request) (*http.Response, error) {
	t := b.r.inUse()
	if t == nil { // the configuration was replaced by one without a token to renew
		return b.next.RoundTrip(request)
	}
	request = request.Clone(request.Context())
	request.Header.Set("Authorization", "Bearer "+t.text)
	response, err := b.next.RoundTrip(request)
	switch {
	case err != nil:
	case response.StatusCode == http.StatusUnauthorized:
		b.r.refused(t)
	default:
		b.r.accepted(t)
	}
	return response, err
}

// WrappedRoundTripper lets client-go reach what lies below, to close its connections.
func (b *bearer) WrappedRoundTripper() http.RoundTripper { return b.next }
