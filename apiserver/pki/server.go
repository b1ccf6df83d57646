package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// names are what the server's certificate is valid for.
type names struct {
	dns []string
	ips []net.IP
}

// parseNames adds the names that every server has to those given.
func parseNames(extra []string) (names, error) {
	all := append([]string{"localhost", "127.0.0.1", "::1"}, extra...)
	if host, err := os.Hostname(); err == nil && isDNS(strings.ToLower(host)) {
		all = append(all, strings.ToLower(host))
	}
	var n names
	for _, name := range all {
		ip := net.ParseIP(name)
		switch {
		case ip != nil && ip.IsUnspecified():
			return n, fmt.Errorf("pki: server name %q is not an address that clients can connect to", name)
		case ip != nil && !slices.ContainsFunc(n.ips, ip.Equal):
			n.ips = append(n.ips, ip)
		case ip != nil:
		case !isDNS(strings.TrimPrefix(name, "*.")):
			return n, fmt.Errorf("pki: server name %q is neither an IP address nor a DNS name", name)
		case !slices.Contains(n.dns, name):
			n.dns = append(n.dns, name)
		}
	}
	return n, nil
}

// Cover has the server's certificate be valid for an address, from the next connection on.
func (b *Bundle) Cover(at netip.Addr) {
	ip := net.IP(at.AsSlice())
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.ContainsFunc(b.names.ips, ip.Equal) {
		return
	}
	b.names.ips = append(b.names.ips, ip)
	b.server = nil
}

func isDNS(name string) bool { return len(validation.IsDNS1123Subdomain(name)) == 0 }

// serving is the server's certificate as TLS uses it.
type serving struct {
	certificate *tls.Certificate
	renew       time.Time
}

// ServerTLS returns the configuration of the server's listeners: TLS 1.2 and up, HTTP/2 and HTTP/1.1. It
// asks clients for a certificate but leaves the verification to package authn, so that a wrong one gets a
// proper answer instead of a broken connection.
func (b *Bundle) ServerTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		ClientAuth: tls.RequestClientCert,
		ClientCAs:  b.ClientCAs(),
		Time:       b.now,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return b.serverCertificate()
		},
	}
}

// serverCertificate returns the current certificate, renewed when it is due. Making one takes well under a
// millisecond, so that a connection can wait for it.
func (b *Bundle) serverCertificate() (*tls.Certificate, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	if s := b.server; s != nil && now.Before(s.renew) && !now.Before(s.certificate.Leaf.NotBefore) {
		return s.certificate, nil
	}
	renewed, err := b.newServer(now)
	if err != nil {
		if b.server != nil {
			b.log.Error("cannot renew the server's certificate", "err", err)
			return b.server.certificate, nil
		}
		return nil, err
	}
	if b.server != nil {
		b.log.Info("renewed the server's certificate", "expires", renewed.certificate.Leaf.NotAfter)
	}
	b.server = renewed
	return renewed.certificate, nil
}

func (b *Bundle) newServer(now time.Time) (*serving, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("pki: make a key: %w", err)
	}
	der, err := b.ca.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "monoplane"}, DNSNames: b.names.dns, IPAddresses: b.names.ips,
		NotBefore: now.Add(-backdate), NotAfter: now.Add(serverLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("pki: make a server certificate: %w", err)
	}
	return &serving{
		certificate: &tls.Certificate{Certificate: [][]byte{der, b.ca.cert.Raw}, PrivateKey: key, Leaf: leaf},
		renew:       leaf.NotAfter.Add(-leaf.NotAfter.Sub(now) / 3),
	}, nil
}
