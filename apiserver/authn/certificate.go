package authn

import (
	"crypto/x509"
	"errors"
	"time"
)

const (
	// maxVerified is the most certificates whose verification is remembered.
	maxVerified = 4096
	// maxChain is the most certificates of a client that are looked at.
	maxChain = 8
)

// verified is the outcome of a successful verification, so that it is not repeated for every request of a
// connection. It holds while every certificate of the chain is valid.
type verified struct {
	user          *User
	after, before time.Time
}

// certificate returns the user that a chain of certificates, the client's own first, stands for: the
// common name is the user, the organisations are the groups.
func (a *Authenticator) certificate(chain []*x509.Certificate) (*User, error) {
	leaf, now := chain[0], a.now()
	a.mu.RLock()
	v, ok := a.verified[string(leaf.Raw)]
	a.mu.RUnlock()
	if ok && now.After(v.after) && now.Before(v.before) {
		return v.user, nil
	}
	v, err := a.verify(chain, now)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.verified) >= maxVerified {
		clear(a.verified)
	}
	a.verified[string(leaf.Raw)] = v
	return v.user, nil
}

func (a *Authenticator) verify(chain []*x509.Certificate, now time.Time) (verified, error) {
	leaf := chain[0]
	if a.cas == nil {
		return verified{}, unauthorized("client certificates are not accepted")
	}
	if len(chain) > maxChain {
		return verified{}, unauthorized("client certificate chain is longer than %d", maxChain)
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	chains, err := leaf.Verify(x509.VerifyOptions{
		Roots: a.cas(), Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return verified{}, unauthorized("client certificate %s", wrong(leaf, err))
	}
	if leaf.Subject.CommonName == "" {
		return verified{}, unauthorized("client certificate has no common name to tell the user")
	}
	v := verified{after: leaf.NotBefore, before: leaf.NotAfter}
	for _, c := range chains[0] {
		if c.NotBefore.After(v.after) {
			v.after = c.NotBefore
		}
		if c.NotAfter.Before(v.before) {
			v.before = c.NotAfter
		}
	}
	groups := make([]string, 0, len(leaf.Subject.Organization)+1)
	groups = append(append(groups, leaf.Subject.Organization...), AuthenticatedGroup)
	v.user = &User{Name: leaf.Subject.CommonName, Groups: groups}
	return v, nil
}

// wrong says what is wrong with a certificate, in words for its owner.
func wrong(leaf *x509.Certificate, err error) string {
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &unknown):
		return "is signed by an unknown authority"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "is valid only from " + leaf.NotBefore.UTC().Format(time.RFC3339) +
			" to " + leaf.NotAfter.UTC().Format(time.RFC3339)
	case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		return "is not meant for clients"
	}
	return "cannot be verified: " + err.Error()
}
