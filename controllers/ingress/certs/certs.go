// Package certs chooses the certificate that a server of TLS shows by the name that the client asks for, as the tls
// sections of Ingresses say.
//
// A Set is made once and never changes: whoever learns of another certificate makes another set. A client that asks
// for a name that nobody has a certificate for, or for none, is shown the one of an entry without hosts, and otherwise
// the default one, so that a handshake never fails for want of a certificate.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"

	"monoplane.dev/controllers/ingress/route"
)

// Entry is a certificate and the names that it is shown for.
type Entry struct {
	// Hosts are names, or such whose first label is "*", which stands for exactly one; none are all names.
	Hosts       []string
	Certificate *tls.Certificate
}

// Set is the certificates of a server.
type Set struct {
	hosts map[string]*tls.Certificate
	other *tls.Certificate
}

// New returns a set. Of two entries for one name the first counts. Default is shown where no entry fits.
func New(entries []Entry, byDefault *tls.Certificate) *Set {
	s := &Set{hosts: map[string]*tls.Certificate{}}
	for _, e := range entries {
		for _, h := range e.Hosts {
			if h = route.Host(h); s.hosts[h] == nil {
				s.hosts[h] = e.Certificate
			}
		}
		if len(e.Hosts) == 0 && s.other == nil {
			s.other = e.Certificate
		}
	}
	if s.other == nil {
		s.other = byDefault
	}
	return s
}

// For returns the certificate for a name, as it is in the client's greeting.
func (s *Set) For(name string) *tls.Certificate {
	name = route.Host(name)
	if c := s.hosts[name]; c != nil {
		return c
	}
	if wild := route.Wildcard(name); wild != "" && s.hosts[wild] != nil {
		return s.hosts[wild]
	}
	return s.other
}

// The keys of a Secret of type kubernetes.io/tls.
const (
	certificateKey = "tls.crt"
	privateKey     = "tls.key"
)

// Parse reads the data of a Secret of type kubernetes.io/tls. Errors name the key that is wrong, and never show what
// is in it.
func Parse(data map[string][]byte) (*tls.Certificate, error) {
	for _, key := range []string{certificateKey, privateKey} {
		if len(data[key]) == 0 {
			return nil, fmt.Errorf("it has no data[%q]", key)
		}
	}
	c, err := tls.X509KeyPair(data[certificateKey], data[privateKey])
	if err != nil {
		return nil, fmt.Errorf("its data[%q] and data[%q]: %w", certificateKey, privateKey, err)
	}
	return &c, nil
}

// lifetime is that of a certificate that SelfSigned makes.
const lifetime = 10 * 365 * 24 * time.Hour

// SelfSigned makes a certificate that nobody trusts, for names that have none, with a key that is nowhere kept.
func SelfSigned() (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	const name = "ingress.monoplane.invalid"
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "Monoplane Ingress default certificate"},
		DNSNames: []string{name}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(lifetime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, errors.Join(errors.New("the default certificate of Ingresses"), err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}
