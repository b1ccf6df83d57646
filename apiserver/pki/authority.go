package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"

	"monoplane.dev/internal/datadir"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// ensureAuthority loads the authority from dir, or makes one when neither of its files is there.
func ensureAuthority(dir *datadir.Dir, now time.Time) (*authority, error) {
	const cert = "ca.crt"
	have, err := exists(dir, cert)
	if err != nil {
		return nil, err
	}
	if !have {
		// A key alone is what a crash during the first start leaves, before anything was signed. With the
		// administrator's certificate there, the authority has been in use and its certificate was lost.
		if orphan, err := exists(dir, "admin.crt"); err != nil || orphan {
			return nil, firstError(err, damaged(dir, cert, "it is missing"))
		}
		return makeAuthority(dir, now)
	}
	pair, err := loadPair(dir, "ca")
	if err != nil {
		return nil, err
	}
	switch {
	case !pair.cert.IsCA || pair.cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return nil, damaged(dir, cert, "it is not a certificate authority")
	case pair.cert.CheckSignature(pair.cert.SignatureAlgorithm, pair.cert.RawTBSCertificate, pair.cert.Signature) != nil:
		return nil, damaged(dir, cert, "its signature is wrong")
	case now.After(pair.cert.NotAfter):
		return nil, damaged(dir, cert, "it expired on "+pair.cert.NotAfter.UTC().Format(time.DateOnly))
	}
	a := &authority{cert: pair.cert, key: pair.key, pem: pair.certPEM}
	if due(pair.cert, now) {
		return a.renewed(dir, now)
	}
	return a, nil
}

// renewed writes a new certificate of the same authority: its name and its key stay, so that whoever trusts either
// certificate trusts what was signed under the other.
func (a *authority) renewed(dir *datadir.Dir, now time.Time) (*authority, error) {
	template := authorityTemplate(a.cert.Subject, now)
	next := &authority{cert: template, key: a.key}
	if err := next.signItself(template); err != nil {
		return nil, err
	}
	return next, writeFile(dir, "ca.crt", next.pem)
}

func makeAuthority(dir *datadir.Dir, now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("pki: make a key: %w", err)
	}
	template := authorityTemplate(pkix.Name{CommonName: "monoplane-ca-" + shortID()}, now)
	a := &authority{cert: template, key: key}
	if err := a.signItself(template); err != nil {
		return nil, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	if err := writeFile(dir, "ca.key", keyPEM); err != nil {
		return nil, err
	}
	return a, writeFile(dir, "ca.crt", a.pem)
}

func authorityTemplate(subject pkix.Name, now time.Time) *x509.Certificate {
	return &x509.Certificate{
		Subject:   subject,
		NotBefore: now.Add(-caBackdate), NotAfter: now.Add(caLife),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, BasicConstraintsValid: true, IsCA: true,
		MaxPathLenZero: true,
	}
}

// signItself makes the authority's certificate of a template.
func (a *authority) signItself(template *x509.Certificate) error {
	der, err := a.sign(template, a.key)
	if err != nil {
		return err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return fmt.Errorf("pki: make a certificate authority: %w", err)
	}
	a.pem = pemBlock("CERTIFICATE", der)
	return nil
}

// client makes a client certificate for key, or for a new key when that is nil.
func (a *authority) client(
	name string, groups []string, now time.Time, ttl time.Duration, key *ecdsa.PrivateKey,
) (Identity, error) {
	if key == nil {
		var err error
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return Identity{}, fmt.Errorf("pki: make a key: %w", err)
		}
	}
	der, err := a.sign(&x509.Certificate{
		Subject:   pkix.Name{CommonName: name, Organization: groups},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(ttl),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, key)
	if err != nil {
		return Identity{}, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return Identity{}, err
	}
	return Identity{CA: a.pem, Cert: pemBlock("CERTIFICATE", der), Key: keyPEM}, nil
}

// sign is signFor for a key pair of ours.
func (a *authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) ([]byte, error) {
	return a.signFor(template, &key.PublicKey)
}

// signFor completes a template, which must not outlive the authority, and signs it for a public key.
func (a *authority) signFor(template *x509.Certificate, key any) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("pki: make a serial number: %w", err)
	}
	template.SerialNumber = serial.Add(serial, big.NewInt(1))
	if template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key, a.key)
	if err != nil {
		return nil, fmt.Errorf("pki: sign a certificate: %w", err)
	}
	return der, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("pki: encode a key: %w", err)
	}
	return pemBlock("EC PRIVATE KEY", der), nil
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func shortID() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // Never fails (crypto/rand).
	return hex.EncodeToString(b[:])
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
