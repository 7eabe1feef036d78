package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// authority is the cluster CA. It signs the serving certificates and the client certificates that stand for users.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
	dir         string
}

// newAuthority makes a CA and writes ca.crt and ca.key into dir.
func newAuthority(dir string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the cluster CA: %w", err)
	}
	certificate, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "fettle-test-cluster"}, key)
	if err != nil {
		return nil, fmt.Errorf("make the cluster CA: %w", err)
	}
	ca := &authority{certificate: certificate, key: key, dir: dir}
	return ca, ca.writePair("ca", certificate.Raw, key)
}

func (ca *authority) pem() []byte { return encodeCertificate(ca.certificate.Raw) }

func (ca *authority) file() string { return filepath.Join(ca.dir, "ca.crt") }

// serving writes a serving certificate for the names and addresses as <name>.crt and <name>.key.
func (ca *authority) serving(name string, hosts ...string) error {
	template := x509.Certificate{Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, key, err := ca.sign(template)
	if err != nil {
		return err
	}
	return ca.writePair(name, der, key)
}

// client makes a certificate that authenticates as the user in the groups, PEM encoded.
func (ca *authority) client(user string, groups []string) (certificate, key []byte, err error) {
	der, signer, err := ca.sign(x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil, nil, err
	}
	if key, err = keyutil.MarshalPrivateKeyToPEM(signer); err != nil {
		return nil, nil, fmt.Errorf("encode the key of %s: %w", user, err)
	}
	return encodeCertificate(der), key, nil
}

func (ca *authority) sign(template x509.Certificate) (der []byte, key *ecdsa.PrivateKey, err error) {
	name := template.Subject.CommonName
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, fmt.Errorf("make a key for %s: %w", name, err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		return nil, nil, fmt.Errorf("make a certificate for %s: %w", name, err)
	}
	template.NotBefore = ca.certificate.NotBefore
	template.NotAfter = time.Now().Add(7 * 24 * time.Hour)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	if der, err = x509.CreateCertificate(rand.Reader, &template, ca.certificate, key.Public(), ca.key); err != nil {
		return nil, nil, fmt.Errorf("make a certificate for %s: %w", name, err)
	}
	return der, key, nil
}

// clientFiles writes what client makes as <name>.crt and <name>.key.
func (ca *authority) clientFiles(name, user string, groups ...string) error {
	certificate, key, err := ca.client(user, groups)
	if err != nil {
		return err
	}
	if err := ca.write(name+".key", key); err != nil {
		return err
	}
	return ca.write(name+".crt", certificate)
}

func (ca *authority) writePair(name string, der []byte, key crypto.Signer) error {
	if err := ca.writeKey(name, key); err != nil {
		return err
	}
	return ca.write(name+".crt", encodeCertificate(der))
}

func (ca *authority) writeKey(name string, key crypto.Signer) error {
	text, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return fmt.Errorf("encode the key %s: %w", name, err)
	}
	return ca.write(name+".key", text)
}

func (ca *authority) write(name string, text []byte) error {
	if err := os.WriteFile(filepath.Join(ca.dir, name), text, 0o600); err != nil {
		return fmt.Errorf("write a certificate or key: %w", err)
	}
	return nil
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der})
}
