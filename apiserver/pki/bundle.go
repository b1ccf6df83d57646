package pki

import (
	"crypto/x509"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"monoplane.dev/datadir"
)

const (
	caLife    = 10 * 365 * 24 * time.Hour
	adminLife = 365 * 24 * time.Hour
	// serverLife is short: the certificate is made anew at each start, and renewed when a third of its life
	// is left.
	serverLife = 30 * 24 * time.Hour
	// maxIssued is the longest life of a certificate that Issue makes.
	maxIssued = adminLife
	// backdate allows for clients whose clocks are behind.
	backdate = time.Hour
)

// AdminUser and AdminGroup are in the administrator's certificate.
const (
	AdminUser  = "monoplane:admin"
	AdminGroup = "system:masters"
)

// Options say what Ensure makes.
type Options struct {
	// Names are further DNS names and IP addresses of the server, beside localhost, 127.0.0.1, ::1 and the
	// host's name.
	Names []string
	// Now is the clock; time.Now when nil.
	Now func() time.Time
	// Logger tells of renewals; silent when nil.
	Logger *slog.Logger
}

// Bundle is a certificate authority with what it has signed. Make one with Ensure. It is safe for
// concurrent use.
type Bundle struct {
	ca    *authority
	admin Identity
	token string
	names names
	now   func() time.Time
	log   *slog.Logger

	mu     sync.Mutex
	server *serving
}

// Identity is a client certificate and its key, with the certificate of the authority, all PEM.
type Identity struct {
	// CA is what the client checks the server's certificate with.
	CA []byte
	// Cert and Key are the client's own.
	Cert, Key []byte
}

// Ensure loads the authority and the administrator's certificate from the directory at path, or makes them when it
// is empty or absent. The administrator's certificate is renewed when a third of its life is left.
func Ensure(path string, opts Options) (*Bundle, error) {
	b := &Bundle{now: opts.Now, log: opts.Logger}
	if b.now == nil {
		b.now = time.Now
	}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if b.names, err = parseNames(opts.Names); err != nil {
		return nil, err
	}
	dir, err := ensureDir(path)
	if err != nil {
		return nil, err
	}
	unlock, err := lock(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if b.ca, err = ensureAuthority(dir, b.now()); err != nil {
		return nil, err
	}
	if b.admin, err = b.ensureAdmin(dir); err != nil {
		return nil, err
	}
	if b.token, err = ensureToken(dir); err != nil {
		return nil, err
	}
	if err := dir.Sync(); err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	if _, err := b.serverCertificate(); err != nil {
		return nil, err
	}
	return b, nil
}

// ensureDir returns the directory, which nobody else may look into.
func ensureDir(path string) (*datadir.Dir, error) {
	dir, err := datadir.Make(path)
	if err == nil {
		err = dir.Private()
	}
	if err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	return dir, nil
}

// ClientCAs returns the pool that clients' certificates are verified with.
func (b *Bundle) ClientCAs() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(b.ca.cert)
	return pool
}

// CA returns the certificate of the authority, PEM.
func (b *Bundle) CA() []byte { return b.ca.pem }

// Admin returns the administrator's certificate and key.
func (b *Bundle) Admin() Identity { return b.admin }

// AdminToken returns the administrator's bearer token.
func (b *Bundle) AdminToken() string { return b.token }

// Issue makes a client certificate for user name in groups that is valid for ttl, but not longer than the
// authority itself, nor than a year.
func (b *Bundle) Issue(name string, groups []string, ttl time.Duration) (Identity, error) {
	if name == "" {
		return Identity{}, fmt.Errorf("pki: a certificate needs a user name")
	}
	if ttl <= 0 || ttl > maxIssued {
		return Identity{}, fmt.Errorf("pki: life of a certificate is %v; it must be above 0 and at most %v", ttl, maxIssued)
	}
	return b.ca.client(name, groups, b.now(), ttl)
}

// ensureAdmin loads the administrator's certificate, or makes or renews it.
func (b *Bundle) ensureAdmin(dir *datadir.Dir) (Identity, error) {
	const cert, key = "admin.crt", "admin.key"
	found, err := both(dir, "admin")
	if err != nil {
		return Identity{}, err
	}
	if found {
		pair, err := loadPair(dir, "admin")
		if err != nil {
			return Identity{}, err
		}
		if err := pair.cert.CheckSignatureFrom(b.ca.cert); err != nil {
			return Identity{}, damaged(dir, cert, "it is not signed by ca.crt")
		}
		if !due(pair.cert, b.now()) {
			return Identity{CA: b.ca.pem, Cert: pair.certPEM, Key: pair.keyPEM}, nil
		}
		b.log.Info("renewing the administrator's certificate", "expires", pair.cert.NotAfter)
	}
	id, err := b.Issue(AdminUser, []string{AdminGroup}, adminLife)
	if err != nil {
		return Identity{}, err
	}
	// The certificate goes first and comes last: after a crash in between it is missing, and both are made
	// again, instead of a certificate and a key that do not match.
	if found {
		if err := dir.Remove(cert); err != nil {
			return Identity{}, fmt.Errorf("pki: renew the administrator's certificate: %w", err)
		}
	}
	if err := writeFile(dir, key, id.Key); err != nil {
		return Identity{}, err
	}
	return id, writeFile(dir, cert, id.Cert)
}

// due says whether a certificate has less than a third of its life left.
func due(c *x509.Certificate, now time.Time) bool {
	return now.After(c.NotAfter.Add(-c.NotAfter.Sub(c.NotBefore)/3)) || now.Before(c.NotBefore)
}
