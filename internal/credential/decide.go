package credential

import (
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// renewBy is the part of a token's life after which it is renewed at the latest; renewSpread is the part before that
	// over which the agents of a fleet spread.
	renewBy     = 0.8
	renewSpread = 0.1

	// shortestLife is the least that the API server lets a token be asked for, longestLife the most that the policy in
	// deploy/daemonset/15-policies.yaml does.
	shortestLife = 10 * time.Minute
	longestLife  = 30 * 24 * time.Hour

	firstRetry   = 10 * time.Second
	longestRetry = 10 * time.Minute
)

// Next is when a token is to be renewed that was first seen at now and has been there for as long as its claims say.
// spread is in [0, 1). A token that was issued in the future, by this machine's clock, counts as new.
func Next(now time.Time, c Claims, spread float64) time.Time {
	return now.Add(max(0, wait(c, spread)-max(0, now.Sub(c.IssuedAt))))
}

// wait is how long after it was issued a token is to be renewed.
func wait(c Claims, spread float64) time.Duration {
	return time.Duration(float64(c.life()) * (renewBy - renewSpread*spread))
}

// reached reports whether a time has come. A machine that was suspended is told by its wall clock alone, one whose clock
// was set back by the time that passed alone; renewing too early does no harm.
func reached(now, at time.Time) bool {
	return !now.Before(at) || !now.Round(0).Before(at.Round(0))
}

// retryAfter is how long to wait after that many failures in a row, one or more.
func retryAfter(failures int, spread float64) time.Duration {
	d := firstRetry
	for range min(failures-1, 10) {
		d *= 2
	}
	d = min(d, longestRetry)
	return d - time.Duration(float64(d)*spread/4)
}

// deliveredWins decides between a token that was delivered and one that was renewed earlier. A renewed one counts only
// for the same holder, and while the delivered one is not the fresher.
func deliveredWins(delivered, renewed Claims) bool {
	return delivered.Holder != renewed.Holder ||
		delivered.IssuedAt.After(renewed.IssuedAt) || delivered.Expires.After(renewed.Expires)
}

// request asks for a token like the one that there is: of the same holder, and for as long.
func request(c Claims) *authenticationv1.TokenRequest {
	seconds := int64(min(max(c.life(), shortestLife), longestLife) / time.Second)
	return &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: c.Node, UID: types.UID(c.NodeUID)},
	}}
}
