package certs

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"time"
)

// ErrNoAuthority says that there is nobody to sign a certificate yet.
var ErrNoAuthority = errors.New("no authority has been made yet")

// Serving is a serving certificate with its key, and who signed it.
type Serving struct {
	TLS    *tls.Certificate
	signer *x509.Certificate
}

// Serve gives a certificate for the DNS name: the one before while it is good, else a new one.
func (a Authorities) Serve(before Serving, dnsName string, now time.Time, l Lifetimes) (Serving, error) {
	signer, ok := a.signer(now, l)
	if !ok {
		return Serving{}, ErrNoAuthority
	}
	if before.signer != nil && before.signer.Equal(signer.certificate) && now.Before(before.renewAt(l)) {
		return before, nil
	}
	ends := now.Add(l.Serving)
	if ends.After(signer.certificate.NotAfter) {
		ends = signer.certificate.NotAfter
	}
	certificate, key, err := issue(x509.Certificate{
		Subject:     pkix.Name{CommonName: dnsName},
		DNSNames:    []string{dnsName},
		NotBefore:   now.Add(-early),
		NotAfter:    ends,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, &signer)
	if err != nil {
		return Serving{}, fmt.Errorf("make a serving certificate: %w", err)
	}
	return Serving{TLS: &tls.Certificate{Certificate: [][]byte{certificate.Raw}, PrivateKey: key, Leaf: certificate}, signer: signer.certificate}, nil
}

// renewAt is when a third of its time is left.
func (s Serving) renewAt(l Lifetimes) time.Time { return s.TLS.Leaf.NotAfter.Add(-l.Serving / 3) }
