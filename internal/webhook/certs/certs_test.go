package certs

import (
	"bytes"
	"crypto/x509"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

const name = "controller-webhook.fettle-system.svc"

func renewed(t interface{ Fatal(...any) }, a Authorities, now time.Time, l Lifetimes) (Authorities, bool) {
	next, changed, err := a.Renew(now, l)
	if err != nil {
		t.Fatal(err)
	}
	return next, changed
}

// trusts verifies a serving certificate as the API server does that knows a bundle.
func trusts(bundle []byte, s Serving, now time.Time) error {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return errors.New("an empty bundle")
	}
	_, err := s.TLS.Leaf.Verify(x509.VerifyOptions{
		Roots: roots, DNSName: name, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err
}

func TestNobodySignsBeforeThereIsAnAuthority(t *testing.T) {
	if _, err := (Authorities{}).Serve(Serving{}, name, noon, DefaultLifetimes()); !errors.Is(err, ErrNoAuthority) {
		t.Error(err)
	}
}

func TestAuthoritiesSurviveTheirSecret(t *testing.T) {
	l := DefaultLifetimes()
	one, _ := renewed(t, Authorities{}, noon, l)
	two, changed := renewed(t, one, noon.Add(l.Authority*3/4), l)
	if !changed || len(two.list) != 2 {
		t.Fatalf("%d authorities", len(two.list))
	}
	data, err := two.Data()
	if err != nil {
		t.Fatal(err)
	}
	read, err := Read(data)
	if err != nil {
		t.Fatal(err)
	}
	again, err := read.Data()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again[CertificatesKey], data[CertificatesKey]) || !bytes.Equal(again[PrivateKeysKey], data[PrivateKeysKey]) {
		t.Error("what was read is not what was written")
	}
}

func TestABrokenSecretIsRefused(t *testing.T) {
	l := DefaultLifetimes()
	a, _ := renewed(t, Authorities{}, noon, l)
	b, _ := renewed(t, Authorities{}, noon, l)
	dataA, err := a.Data()
	if err != nil {
		t.Fatal(err)
	}
	dataB, err := b.Data()
	if err != nil {
		t.Fatal(err)
	}
	for what, data := range map[string]map[string][]byte{
		"a certificate that is none":     {CertificatesKey: []byte("x"), PrivateKeysKey: dataA[PrivateKeysKey]},
		"no key":                         {CertificatesKey: dataA[CertificatesKey]},
		"no certificate":                 {PrivateKeysKey: dataA[PrivateKeysKey]},
		"a certificate with another key": {CertificatesKey: dataA[CertificatesKey], PrivateKeysKey: dataB[PrivateKeysKey]},
		"a key that is none":             {CertificatesKey: dataA[CertificatesKey], PrivateKeysKey: bytes.Replace(dataA[PrivateKeysKey], []byte("M"), []byte("N"), 1)},
		"fewer keys than certificates":   {CertificatesKey: append(bytes.Clone(dataA[CertificatesKey]), dataB[CertificatesKey]...), PrivateKeysKey: dataA[PrivateKeysKey]},
	} {
		if _, err := Read(data); err == nil {
			t.Errorf("%s was accepted", what)
		}
	}
	if none, err := Read(nil); err != nil || len(none.list) != 0 {
		t.Errorf("an empty Secret: %v", err)
	}
}

// TestServedCertificatesAreAlwaysTrusted lets years pass in random steps. A leader renews when it is time to; the API server
// knows the bundle of a while ago; two replicas know the Secret of a while ago. No replica ever shows a certificate that the
// API server does not trust, no certificate is made anew without need, and the bundle stays small.
func TestServedCertificatesAreAlwaysTrusted(t *testing.T) {
	l := DefaultLifetimes()
	const lag = 7 * 24 * time.Hour // far more than anything lags
	rapid.Check(t, func(t *rapid.T) {
		now := noon
		leader, _ := renewed(t, Authorities{}, now, l)
		server := leader.Bundle()
		replicas := make([]Authorities, 2)
		serving := make([]Serving, 2)
		for i := range replicas {
			replicas[i] = leader
		}
		var pending []func() // what reaches the others at the next step
		for range 60 {
			now = now.Add(time.Duration(rapid.Int64Range(int64(time.Hour), int64(lag)).Draw(t, "step")))
			for _, arrive := range pending {
				arrive()
			}
			pending = nil
			next, changed := renewed(t, leader, now, l)
			if changed {
				leader = next
				bundle := leader.Bundle()
				pending = append(pending, func() { server = bundle }, func() { replicas[0] = next })
				replicas[1] = next // is quick
			}
			if len(leader.list) > 2 {
				t.Fatalf("%d authorities", len(leader.list))
			}
			if at := leader.RenewAt(l); !at.After(now) {
				t.Fatalf("just renewed, and to be renewed at %s, now %s", at, now)
			}
			for i := range replicas {
				was := serving[i]
				is, err := replicas[i].Serve(was, name, now, l)
				if err != nil {
					t.Fatal(err)
				}
				if was.TLS != nil && is.TLS != was.TLS && is.signer.Equal(was.signer) && was.TLS.Leaf.NotAfter.Sub(now) > l.Serving/3 {
					t.Fatalf("a certificate with %s left was made anew", was.TLS.Leaf.NotAfter.Sub(now))
				}
				if err := trusts(server, is, now); err != nil {
					t.Fatalf("replica %d at %s: %v", i, now, err)
				}
				serving[i] = is
			}
		}
	})
}

func TestAfterYearsAwayEverythingIsNew(t *testing.T) {
	l := DefaultLifetimes()
	old, _ := renewed(t, Authorities{}, noon, l)
	served, err := old.Serve(Serving{}, name, noon, l)
	if err != nil {
		t.Fatal(err)
	}
	later := noon.Add(3 * l.Authority)
	fresh, changed := renewed(t, old, later, l)
	if !changed || len(fresh.list) != 1 {
		t.Fatalf("%d authorities", len(fresh.list))
	}
	again, err := fresh.Serve(served, name, later, l)
	if err != nil {
		t.Fatal(err)
	}
	if err := trusts(fresh.Bundle(), again, later); err != nil {
		t.Error(err)
	}
}
