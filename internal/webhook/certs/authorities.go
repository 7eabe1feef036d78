package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Keys of the Secret's data: certificates and keys of the authorities, PEM, one after the other, the oldest first.
const (
	CertificatesKey = "ca.crt"
	PrivateKeysKey  = "ca.key"
)

// Lifetimes of what is made. Everything else follows from them.
type Lifetimes struct {
	// Authority is how long an authority is valid. Another is made when a third of it is left, and signed with when a sixth
	// is: in between, the API server learns of it.
	Authority time.Duration
	// Serving is how long a serving certificate is valid. It is renewed when a third of it is left.
	Serving time.Duration
}

// DefaultLifetimes leave four months for a controller that is away, and two for an API server to learn of an authority.
func DefaultLifetimes() Lifetimes {
	return Lifetimes{Authority: 365 * 24 * time.Hour, Serving: 30 * 24 * time.Hour}
}

// early is how long before now certificates begin, for machines whose clocks are behind.
const early = time.Hour

type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// Authorities are those that are trusted, the oldest first. The zero value has none. They are never changed.
type Authorities struct{ list []authority }

// Read takes authorities from the data of a Secret.
func Read(data map[string][]byte) (Authorities, error) {
	if len(data[CertificatesKey]) == 0 && len(data[PrivateKeysKey]) == 0 {
		return Authorities{}, nil
	}
	certificates, err := cert.ParseCertsPEM(data[CertificatesKey])
	if err != nil {
		return Authorities{}, fmt.Errorf("read %s: %w", CertificatesKey, err)
	}
	var list []authority
	rest := data[PrivateKeysKey]
	for _, certificate := range certificates {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return Authorities{}, fmt.Errorf("read %s: it has fewer keys than %s has certificates", PrivateKeysKey, CertificatesKey)
		}
		key, err := x509.ParseECPrivateKey(block.Bytes)
		if err != nil {
			return Authorities{}, fmt.Errorf("read %s: %w", PrivateKeysKey, err)
		}
		if !key.PublicKey.Equal(certificate.PublicKey) {
			return Authorities{}, fmt.Errorf("read %s: a key is not that of its certificate in %s", PrivateKeysKey, CertificatesKey)
		}
		list = append(list, authority{certificate, key})
	}
	return Authorities{list}, nil
}

// Data gives what Read reads.
func (a Authorities) Data() (map[string][]byte, error) {
	var keys bytes.Buffer
	for _, ca := range a.list {
		text, err := keyutil.MarshalPrivateKeyToPEM(ca.key)
		if err != nil {
			return nil, fmt.Errorf("encode the key of an authority: %w", err)
		}
		keys.Write(text)
	}
	return map[string][]byte{CertificatesKey: a.Bundle(), PrivateKeysKey: keys.Bytes()}, nil
}

// Bundle gives the certificates that the API server has to trust, PEM.
func (a Authorities) Bundle() []byte {
	var out bytes.Buffer
	for _, ca := range a.list {
		out.Write(pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: ca.certificate.Raw}))
	}
	return out.Bytes()
}

// Renew drops authorities that ended, adds one when it is time to, and reports whether it did either.
func (a Authorities) Renew(now time.Time, l Lifetimes) (next Authorities, changed bool, err error) {
	for _, ca := range a.list {
		if now.Before(ca.certificate.NotAfter) {
			next.list = append(next.list, ca)
		}
	}
	changed = len(next.list) != len(a.list)
	if n := len(next.list); n > 0 && now.Add(l.Authority/3).Before(next.list[n-1].certificate.NotAfter) {
		return next, changed, nil
	}
	made, err := newAuthority(now, l)
	if err != nil {
		return Authorities{}, false, err
	}
	next.list = append(next.list, made)
	return next, true, nil
}

// RenewAt is when Renew has something to do next.
func (a Authorities) RenewAt(l Lifetimes) time.Time {
	if len(a.list) == 0 {
		return time.Time{}
	}
	at := a.list[len(a.list)-1].certificate.NotAfter.Add(-l.Authority / 3)
	if ends := a.list[0].certificate.NotAfter; ends.Before(at) {
		return ends
	}
	return at
}

// signer is the oldest authority with time enough left, else the newest; false if there is none.
func (a Authorities) signer(now time.Time, l Lifetimes) (authority, bool) {
	for _, ca := range a.list {
		if now.Add(l.Authority / 6).Before(ca.certificate.NotAfter) {
			return ca, true
		}
	}
	if len(a.list) == 0 {
		return authority{}, false
	}
	return a.list[len(a.list)-1], true
}

func newAuthority(now time.Time, l Lifetimes) (authority, error) {
	template := x509.Certificate{
		Subject:               pkix.Name{CommonName: "fettle-controller-webhook"},
		NotBefore:             now.Add(-early),
		NotAfter:              now.Add(l.Authority),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	certificate, key, err := issue(template, nil)
	if err != nil {
		return authority{}, fmt.Errorf("make an authority: %w", err)
	}
	return authority{certificate, key}, nil
}

// issue makes a key and a certificate for it, signed by itself when there is no parent.
func issue(template x509.Certificate, parent *authority) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, nil, err
	}
	signs := authority{&template, key}
	if parent != nil {
		signs = *parent
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, signs.certificate, key.Public(), signs.key)
	if err != nil {
		return nil, nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	return certificate, key, err
}
