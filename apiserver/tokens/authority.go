package tokens

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/uuid"
	"k8s.io/utils/clock"

	"monoplane.dev/apiserver/store"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
)

// DefaultIssuer is the issuer, and the audience of the API server, of clusters that choose none.
const DefaultIssuer = "https://kubernetes.default.svc.cluster.local"

// Keys sign and verify; pki.TokenKeys are such.
type Keys interface {
	// Signing returns the key that signs.
	Signing() *ecdsa.PrivateKey
	// Verifying returns the keys of all tokens that have not expired, the one that signs first.
	Verifying() []*ecdsa.PublicKey
	// All returns those and the keys that signed before: of what Secrets hold, which has no end of its own.
	All() []*ecdsa.PublicKey
}

// Objects looks up what a token stands or falls with; a *store.Store is such.
type Objects interface {
	// Get returns an object as it is now when rv is empty, or NotFound.
	Get(ctx context.Context, key store.Key, rv string) (object.Object, error)
}

// Config says what an Authority needs.
type Config struct {
	// Keys and Objects are required.
	Keys    Keys
	Objects Objects
	// Issuer is in all tokens; DefaultIssuer when empty.
	Issuer string
	// Audiences are the names of the API server; the issuer when there are none.
	Audiences []string
	// Clock defaults to the real one.
	Clock clock.PassiveClock
	// Rand is where the tokens' ids come from. Required.
	Rand io.Reader
}

// Authority issues tokens and tells whose they are. Make one with New. It is safe for concurrent use.
type Authority struct {
	cfg Config

	mu sync.RWMutex
	// verified has what tokens say whose signature was found right, by their digests.
	verified map[[sha256.Size]byte]*verified
}

// New returns an Authority.
func New(cfg Config) *Authority {
	if cfg.Issuer == "" {
		cfg.Issuer = DefaultIssuer
	}
	if len(cfg.Audiences) == 0 {
		cfg.Audiences = []string{cfg.Issuer}
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	return &Authority{cfg: cfg, verified: make(map[[sha256.Size]byte]*verified)}
}

// Audiences returns the names of the API server: a token without other audiences is for them.
func (a *Authority) Audiences() []string { return a.cfg.Audiences }

// Grant is what a token says.
type Grant struct {
	// Account is whose token it is. Required.
	Account *corev1.ServiceAccount
	// Pod, Node and Secret are what it is bound to: a pod, with the node that it runs on if there is one, a node or a
	// secret; or nothing.
	Pod    *corev1.Pod
	Node   *corev1.Node
	Secret *corev1.Secret
	// Audiences are whom it is for.
	Audiences []string
	// Life is how long it is valid.
	Life time.Duration
	// WarnAfter is after how long whoever uses it still should have another; 0 for no sooner than its end.
	WarnAfter time.Duration
}

// claims are those of Kubernetes.
type claims struct {
	Kubernetes kubernetes `json:"kubernetes.io,omitempty"`
}

type kubernetes struct {
	Namespace string `json:"namespace,omitempty"`
	Account   ref    `json:"serviceaccount,omitempty"`
	Pod       *ref   `json:"pod,omitempty"`
	Secret    *ref   `json:"secret,omitempty"`
	Node      *ref   `json:"node,omitempty"`
	// WarnAfter is when the token should have been replaced, of one that is valid for longer.
	WarnAfter *jwt.NumericDate `json:"warnafter,omitempty"`
}

// ref names an object. The node of a pod has no uid when it is not there.
type ref struct {
	Name string `json:"name,omitempty"`
	UID  string `json:"uid,omitempty"`
}

func refTo(o object.Object) *ref { return &ref{o.GetMetadata().GetName(), o.GetMetadata().GetUid()} }

// Issue returns a token and when it is to be replaced.
func (a *Authority) Issue(g Grant) (token string, expires time.Time, err error) {
	id, err := uuid.NewRandomFromReader(a.cfg.Rand)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("make the id of a token: %w", err)
	}
	m, now := g.Account.GetMetadata(), a.cfg.Clock.Now()
	private := claims{kubernetes{Namespace: m.GetNamespace(), Account: *refTo(g.Account)}}
	if g.Pod != nil {
		private.Kubernetes.Pod = refTo(g.Pod)
	}
	if g.Node != nil {
		private.Kubernetes.Node = refTo(g.Node)
	}
	if g.Secret != nil {
		private.Kubernetes.Secret = refTo(g.Secret)
	}
	expires = now.Add(g.Life)
	if g.WarnAfter > 0 {
		expires = now.Add(g.WarnAfter)
		private.Kubernetes.WarnAfter = jwt.NewNumericDate(expires)
	}
	token, err = a.sign(private, jwt.Claims{
		Issuer: a.cfg.Issuer, Subject: userPrefix + m.GetNamespace() + ":" + m.GetName(), Audience: g.Audiences,
		ID: id.String(), IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now),
		Expiry: jwt.NewNumericDate(now.Add(g.Life)),
	})
	return token, expires, err
}

// sign makes a token of what it says.
func (a *Authority) sign(private any, public jwt.Claims) (string, error) {
	key := a.cfg.Keys.Signing()
	keyID, err := idOf(&key.PublicKey)
	if err != nil {
		return "", err
	}
	signer, err := jose.NewSigner(jose.SigningKey{
		Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: keyID, Algorithm: string(jose.ES256)},
	}, nil)
	if err != nil {
		return "", fmt.Errorf("sign a token: %w", err)
	}
	token, err := jwt.Signed(signer).Claims(private).Claims(public).Serialize()
	if err != nil {
		return "", fmt.Errorf("sign a token: %w", err)
	}
	return token, nil
}

// idOf returns the id of a key, which says nothing but which one it is: the digest of its public part.
func idOf(key *ecdsa.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", fmt.Errorf("encode a key: %w", err)
	}
	sum := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(sum[:]), nil
}
