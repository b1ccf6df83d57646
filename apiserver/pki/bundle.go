package pki

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"monoplane.dev/internal/datadir"
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
	// caBackdate allows for a clock that is set back: clients keep the authority's certificate, and to them everything
	// that it has signed is as invalid as it. A machine may learn the time after its first start only.
	caBackdate = 365 * 24 * time.Hour
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
	dir   *datadir.Dir
	token string
	names names
	now   func() time.Time
	log   *slog.Logger

	mu    sync.Mutex
	ca    *authority
	pool  *x509.CertPool // of ca alone
	admin Identity
	// adminCert is that of admin.
	adminCert *x509.Certificate
	server    *serving
}

// Identity is a client certificate and its key, with the certificate of the authority, all PEM.
type Identity struct {
	// CA is what the client checks the server's certificate with.
	CA []byte
	// Cert and Key are the client's own.
	Cert, Key []byte
}

// Ensure loads the authority and the administrator's certificate from the directory at path, or makes them when it
// is empty or absent. They are renewed when a third of their lives is left, or when they are of a time to come;
// KeepRenewed does so later.
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
	if b.dir, err = ensureDir(path); err != nil {
		return nil, err
	}
	if _, err := b.ensure(); err != nil {
		return nil, err
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

// ensure makes, loads or renews the files, and says whether anything is not as it was before.
func (b *Bundle) ensure() (changed bool, err error) {
	unlock, err := lock(b.dir)
	if err != nil {
		return false, err
	}
	defer unlock()
	ca, err := ensureAuthority(b.dir, b.now())
	if err != nil {
		return false, err
	}
	admin, err := b.ensureAdmin(ca)
	if err != nil {
		return false, err
	}
	block, _ := pem.Decode(admin.Cert)
	adminCert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return false, fmt.Errorf("pki: read the administrator's certificate: %w", err)
	}
	token, err := ensureToken(b.dir)
	if err != nil {
		return false, err
	}
	if err := b.dir.Sync(); err != nil {
		return false, fmt.Errorf("pki: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ca == nil {
		b.token = token // the one that is accepted until the next start
	}
	newCA := b.ca == nil || !bytes.Equal(b.ca.pem, ca.pem)
	changed = newCA || !bytes.Equal(b.admin.Cert, admin.Cert)
	if newCA {
		b.ca, b.pool, b.server = ca, x509.NewCertPool(), nil
		b.pool.AddCert(ca.cert)
	}
	b.admin, b.adminCert = admin, adminCert
	return changed, nil
}

// isDue says whether ensure would renew something.
func (b *Bundle) isDue() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	return due(b.ca.cert, now) || due(b.adminCert, now)
}

// renewEvery is the time between two looks at the certificates. Of those in files each has a year, but a clock may be
// set.
const renewEvery = 10 * time.Minute

// KeepRenewed renews the authority's and the administrator's certificates in their files when a third of their lives
// is left, or when the clock has been set back to before them, until ctx ends, and returns its error. Each time it
// calls write, for what is made of them elsewhere, such as the kubeconfig; until write succeeds it is called again.
// What goes wrong is logged, and tried again ten minutes later.
func (b *Bundle) KeepRenewed(ctx context.Context, write func() error) error {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	written := true
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if written && !b.isDue() {
			continue
		}
		changed, err := b.ensure()
		if err == nil && (changed || !written) {
			err = write()
			written = err == nil
		}
		if err != nil {
			b.log.Error("cannot renew the certificates; trying again in ten minutes", "error", err)
			continue
		}
		b.log.Info("renewed the administrator's certificate")
	}
}

// authority returns the authority as it is now.
func (b *Bundle) authority() *authority {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ca
}

// ClientCAs returns the pool that clients' certificates are verified with; it must not be changed.
func (b *Bundle) ClientCAs() *x509.CertPool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pool
}

// CA returns the certificate of the authority, PEM.
func (b *Bundle) CA() []byte { return b.authority().pem }

// Admin returns the administrator's certificate and key.
func (b *Bundle) Admin() Identity {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.admin
}

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
	return b.authority().client(name, groups, b.now(), ttl, nil)
}

// Sign signs a template of a client's certificate, which has the public key, and returns it as PEM. What it may say is
// the caller's to judge, but that it is no authority, and good for no more than clients and a year.
func (b *Bundle) Sign(template *x509.Certificate) ([]byte, error) {
	switch {
	case template.IsCA || template.KeyUsage&(x509.KeyUsageCertSign|x509.KeyUsageCRLSign) != 0:
		return nil, errors.New("pki: only the authority itself may sign certificates")
	case len(template.ExtKeyUsage) != 1 || template.ExtKeyUsage[0] != x509.ExtKeyUsageClientAuth:
		return nil, errors.New("pki: the certificate is to be for something else than a client")
	case template.NotAfter.Sub(b.now()) > maxIssued:
		return nil, fmt.Errorf("pki: the certificate is to end on %v, which is later than in %v", template.NotAfter,
			maxIssued)
	}
	der, err := b.authority().signFor(template, template.PublicKey)
	if err != nil {
		return nil, err
	}
	return pemBlock("CERTIFICATE", der), nil
}

// ensureAdmin loads the administrator's certificate, or makes or renews it.
func (b *Bundle) ensureAdmin(ca *authority) (Identity, error) {
	const cert, key = "admin.crt", "admin.key"
	found, err := both(b.dir, "admin")
	if err != nil {
		return Identity{}, err
	}
	if !found {
		id, err := ca.client(AdminUser, []string{AdminGroup}, b.now(), adminLife, nil)
		if err != nil {
			return Identity{}, err
		}
		// The certificate comes last: after a crash in between it is missing, and both are made again.
		if err := writeFile(b.dir, key, id.Key); err != nil {
			return Identity{}, err
		}
		return id, writeFile(b.dir, cert, id.Cert)
	}
	pair, err := loadPair(b.dir, "admin")
	if err != nil {
		return Identity{}, err
	}
	if err := pair.cert.CheckSignatureFrom(ca.cert); err != nil {
		return Identity{}, damaged(b.dir, cert, "it is not signed by ca.crt")
	}
	if !due(pair.cert, b.now()) {
		return Identity{CA: ca.pem, Cert: pair.certPEM, Key: pair.keyPEM}, nil
	}
	// For the key that is there: the two files fit at every moment, whoever reads them while one is replaced.
	id, err := ca.client(AdminUser, []string{AdminGroup}, b.now(), adminLife, pair.key)
	if err != nil {
		return Identity{}, err
	}
	return id, writeFile(b.dir, cert, id.Cert)
}

// due says whether a certificate has to be made anew: soon, or because its time is yet to come.
func due(c *x509.Certificate, now time.Time) bool { return soon(c, now) || now.Before(c.NotBefore) }

// soon says whether a certificate has less than a third of its life left.
func soon(c *x509.Certificate, now time.Time) bool {
	return now.After(c.NotAfter.Add(-c.NotAfter.Sub(c.NotBefore) / 3))
}
