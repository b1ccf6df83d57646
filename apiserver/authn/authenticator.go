package authn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"strings"
	"sync"
	"time"

	"monoplane.dev/apierrors"
)

// Config says whom an Authenticator believes.
type Config struct {
	// ClientCAs returns the authorities that sign the certificates of clients, as they are now; nil refuses all
	// certificates.
	ClientCAs func() *x509.CertPool
	// Bearers are the bearer tokens; nil refuses all tokens.
	Bearers *Bearers
	// Default is who makes a request without credentials, on connections that only a known user can make; nil when
	// there is none.
	Default *User
	// Impersonate judges who may act as somebody else; nil lets nobody.
	Impersonate Impersonator
	// Now is the clock; time.Now when nil.
	Now func() time.Time
	// OpenPaths are URL paths that need no credentials; DefaultOpenPaths when nil. A path covers those
	// below it.
	OpenPaths []string
	// OpenMethods are gRPC methods that need no credentials; DefaultOpenMethods when nil.
	OpenMethods []string
}

// DefaultOpenPaths returns the paths that Kubernetes serves to anyone.
func DefaultOpenPaths() []string { return []string{"/livez", "/readyz", "/healthz", "/version"} }

// DefaultOpenMethods returns the methods of the gRPC health service.
func DefaultOpenMethods() []string {
	return []string{"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"}
}

// Authenticator tells who makes a request. Make one with New. It is safe for concurrent use.
type Authenticator struct {
	cas     func() *x509.CertPool
	bearers *Bearers
	usual   *User
	// impersonate may be nil.
	impersonate Impersonator
	now         func() time.Time
	paths       []string
	open        map[string]bool

	mu sync.RWMutex
	// verified has what is known of certificates by their DER form: to look one up costs less than its digest.
	verified map[string]verified
}

// New returns an Authenticator.
func New(cfg Config) *Authenticator {
	a := &Authenticator{
		cas: cfg.ClientCAs, bearers: cfg.Bearers, usual: cfg.Default, impersonate: cfg.Impersonate,
		now: cfg.Now, paths: cfg.OpenPaths,
		open: map[string]bool{}, verified: map[string]verified{},
	}
	if a.now == nil {
		a.now = time.Now
	}
	if a.paths == nil {
		a.paths = DefaultOpenPaths()
	}
	methods := cfg.OpenMethods
	if methods == nil {
		methods = DefaultOpenMethods()
	}
	for _, m := range methods {
		a.open[m] = true
	}
	return a
}

// user returns who presents these credentials: nil without an error when there are none, and nobody makes requests
// without. An authorization header decides alone; without one the certificate does.
func (a *Authenticator) user(
	ctx context.Context, state *tls.ConnectionState, authorization []string,
) (*User, error) {
	switch {
	case len(authorization) > 1:
		return nil, unauthorized("more than one authorization header")
	case len(authorization) == 1:
		return a.bearer(ctx, authorization[0])
	case state != nil && len(state.PeerCertificates) > 0:
		return a.certificate(state.PeerCertificates)
	}
	return a.usual, nil
}

// Known says whether the client certificate of a connection is that of a user.
func (a *Authenticator) Known(state *tls.ConnectionState) bool {
	if len(state.PeerCertificates) == 0 {
		return false
	}
	_, err := a.certificate(state.PeerCertificates)
	return err == nil
}

func (a *Authenticator) bearer(ctx context.Context, header string) (*User, error) {
	scheme, token, ok := strings.Cut(strings.TrimSpace(header), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return nil, unauthorized("the authorization header must be of the form \"Bearer TOKEN\"")
	}
	u, _, err := a.bearers.User(ctx, strings.TrimSpace(token), nil)
	if err != nil {
		return nil, refusal(err)
	}
	return u, nil
}

func unauthorized(format string, args ...any) error {
	return apierrors.New(apierrors.Unauthorized, "Unauthorized: "+format, args...)
}

func anonymous() *User {
	return &User{Name: AnonymousName, Groups: []string{UnauthenticatedGroup}}
}

// isOpen says whether path needs no credentials.
func (a *Authenticator) isOpen(path string) bool {
	for _, p := range a.paths {
		if rest, ok := strings.CutPrefix(path, p); ok && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return false
}
