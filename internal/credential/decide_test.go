package credential

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var issued = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// lasting are claims of a token that holds for d.
func lasting(d time.Duration) Claims {
	return Claims{
		Holder:   Holder{Namespace: "fettle-system", ServiceAccount: "nodeagent", ServiceAccountUID: "s", Node: "n", NodeUID: "u"},
		IssuedAt: issued, Expires: issued.Add(d),
	}
}

func TestNext(t *testing.T) {
	for _, tc := range []struct {
		name   string
		life   time.Duration
		age    time.Duration // when it is first seen, by this machine's clock
		spread float64
		want   time.Duration // after it is first seen
	}{
		{"a new token is renewed at four fifths of its life", 10 * time.Hour, 0, 0, 8 * time.Hour},
		{"or up to a tenth of its life before that", 10 * time.Hour, 0, 0.5, 7*time.Hour + 30*time.Minute},
		{"one that has lived for a while, when it has lived for as long", 10 * time.Hour, 5 * time.Hour, 0, 3 * time.Hour},
		{"one that is due, at once", 10 * time.Hour, 9 * time.Hour, 0, 0},
		{"one that has expired, at once", 10 * time.Hour, 1000 * time.Hour, 0, 0},
		{"one that is issued in the future counts as new", 10 * time.Hour, -300 * time.Hour, 0, 8 * time.Hour},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now := issued.Add(tc.age)
			if got := Next(now, lasting(tc.life), tc.spread).Sub(now); got != tc.want {
				t.Errorf("got after %s, want after %s", got, tc.want)
			}
		})
	}
}

func TestATokenIsRenewedBeforeItExpiresAndNotOverAndOver(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		life := time.Duration(rapid.Int64Range(int64(shortestLife), int64(400*24*time.Hour)).Draw(r, "life"))
		age := time.Duration(rapid.Int64Range(0, int64(life)-1).Draw(r, "age"))
		spread := rapid.Float64Range(0, 0.999).Draw(r, "spread")
		now := issued.Add(age)
		next := Next(now, lasting(life), spread)
		switch {
		case next.Before(now):
			r.Fatalf("it was to be renewed %s ago", now.Sub(next))
		case next.After(now) && next.Sub(issued) < life*69/100:
			r.Fatalf("renewed at an age of %s of %s", next.Sub(issued), life)
		case next.After(now) && issued.Add(life).Sub(next) < life*19/100:
			r.Fatalf("renewed %s before it expires, of %s", issued.Add(life).Sub(next), life)
		}
	})
}

func TestReached(t *testing.T) {
	start := time.Now()
	for _, tc := range []struct {
		name string
		now  time.Time
		want bool
	}{
		{"before", start, false},
		{"after", start.Add(2 * time.Hour), true},
		{"the machine slept: the monotonic clock stood still, the wall clock did not", start.Round(0).Add(2 * time.Hour), true},
	} {
		if got := reached(tc.now, start.Add(time.Hour)); got != tc.want {
			t.Errorf("%s: got %v", tc.name, got)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	for failures, want := range map[int]time.Duration{1: 10 * time.Second, 2: 20 * time.Second, 4: 80 * time.Second, 7: longestRetry, 1 << 30: longestRetry} {
		if got := retryAfter(failures, 0); got != want {
			t.Errorf("after %d failures: got %s, want %s", failures, got, want)
		}
		if got := retryAfter(failures, 0.999); got < want*3/4 || got >= want {
			t.Errorf("after %d failures, spread: got %s of %s", failures, got, want)
		}
	}
}

func TestDeliveredWins(t *testing.T) {
	of := func(change func(*Claims)) Claims {
		c := lasting(24 * time.Hour)
		change(&c)
		return c
	}
	later := func(c *Claims) { c.IssuedAt, c.Expires = c.IssuedAt.Add(20*time.Hour), c.Expires.Add(20*time.Hour) }
	for _, tc := range []struct {
		name               string
		delivered, renewed Claims
		want               bool
	}{
		{"the renewed one is younger", of(func(*Claims) {}), of(later), false},
		{"both are the same", of(later), of(later), false},
		{"the delivered one was issued later, for less", of(func(c *Claims) { later(c); c.IssuedAt = c.IssuedAt.Add(time.Hour) }), of(later), true},
		{"the delivered one holds for longer", of(func(c *Claims) { c.Expires = c.Expires.Add(21 * time.Hour) }), of(later), true},
		{"it is of a Node that was made anew", of(func(c *Claims) { c.NodeUID = "v" }), of(later), true},
		{"it is of another node", of(func(c *Claims) { c.Node = "m" }), of(later), true},
		{"it is of another ServiceAccount", of(func(c *Claims) { c.ServiceAccount = "other" }), of(later), true},
		{"the ServiceAccount was made anew", of(func(c *Claims) { c.ServiceAccountUID = "t" }), of(later), true},
	} {
		if got := deliveredWins(tc.delivered, tc.renewed); got != tc.want {
			t.Errorf("%s: got %v", tc.name, got)
		}
	}
}

func TestARequestIsForNoMoreThanThePolicyAllows(t *testing.T) {
	for life, want := range map[time.Duration]int64{time.Minute: 600, 24 * time.Hour: 86400, 365 * 24 * time.Hour: 2592000} {
		got := request(lasting(life)).Spec
		if *got.ExpirationSeconds != want {
			t.Errorf("a token of %s: asked for %d s, want %d", life, *got.ExpirationSeconds, want)
		}
		if b := got.BoundObjectRef; b.Kind != "Node" || b.Name != "n" || b.UID != "u" || len(got.Audiences) != 0 {
			t.Errorf("asked for %+v", got)
		}
	}
}

// jwt is a token with a payload and a signature that nobody looks at.
func jwt(payload string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".c2ln"
}

const (
	nodeBound = `{"iat":1772366400,"exp":1772452800,"kubernetes.io":{"namespace":"fettle-system","serviceaccount":{"name":"nodeagent","uid":"s"},"node":{"name":"n","uid":"u"}}}`
	podBound  = `{"iat":1772366400,"exp":1772452800,"kubernetes.io":{"namespace":"fettle-system","serviceaccount":{"name":"nodeagent","uid":"s"},"node":{"name":"n","uid":"u"},"pod":{"name":"p","uid":"q"}}}`
)

func TestReadClaims(t *testing.T) {
	for _, tc := range []struct {
		name, token string
		fails       string // to be read
		why         string // it is not the agent's to renew; both empty: it is
	}{
		{name: "bound to a Node", token: jwt(nodeBound)},
		{name: "bound to a pod", token: jwt(podBound), why: "the kubelet renews it"},
		{name: "bound to nothing", token: jwt(strings.Replace(nodeBound, `,"node":{"name":"n","uid":"u"}`, "", 1)), why: "not bound to a Node"},
		{name: "for ever", token: jwt(strings.Replace(nodeBound, `"exp":1772452800,`, "", 1)), why: "never expires"},
		{name: "expired before it was issued", token: jwt(strings.Replace(nodeBound, `"exp":17`, `"exp":16`, 1)), why: "before it was issued"},
		{name: "a date beyond reason", token: jwt(strings.Replace(nodeBound, `"exp":1772452800`, `"exp":1e300`, 1)), why: "never expires"},
		{name: "a bootstrap token", token: "abcdef.0123456789abcdef", fails: "not a JSON Web Token"},
		{name: "not base64", token: "e30.?.c2ln", fails: "not base64"},
		{name: "not JSON", token: jwt("secret"), fails: "not JSON"},
		{name: "of somebody else", token: jwt(`{"iss":"https://accounts.example.com","exp":1772452800}`), fails: "not a token of a ServiceAccount"},
		{name: "nothing", fails: "not a JSON Web Token"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ReadClaims(tc.token)
			if tc.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tc.fails) || strings.Contains(err.Error(), "secret") {
					t.Fatalf("got %v, want an error with %q", err, tc.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			switch err := got.renewable(); {
			case tc.why == "" && (err != nil || got.IssuedAt.Unix() != 1772366400 || got.life() != 24*time.Hour || got.Node != "n"):
				t.Errorf("got %+v, %v", got, err)
			case tc.why != "" && (err == nil || !strings.Contains(err.Error(), tc.why)):
				t.Errorf("got %v, want %q", err, tc.why)
			}
		})
	}
}

func FuzzReadClaims(f *testing.F) {
	for _, text := range []string{nodeBound, podBound, "{}", `{"exp":-1}`} {
		f.Add(jwt(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := ReadClaims(text); err == nil && c.renewable() == nil && Next(issued, c, 0).Before(issued) {
			t.Errorf("%q is to be renewed in the past", text)
		}
	})
}
