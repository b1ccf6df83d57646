package tokens

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/audit"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
)

const (
	// userPrefix begins the user names of service accounts; NAMESPACE:NAME follows.
	userPrefix = "system:serviceaccount:"
	// accountsGroup holds all service accounts; with a colon and a namespace after it, those of the namespace.
	accountsGroup = "system:serviceaccounts"

	// extra is what is known of a token's user besides.
	extraCredential = "authentication.kubernetes.io/credential-id"
	extraPodName    = "authentication.kubernetes.io/pod-name"
	extraPodUID     = "authentication.kubernetes.io/pod-uid"
	extraNodeName   = "authentication.kubernetes.io/node-name"
	extraNodeUID    = "authentication.kubernetes.io/node-uid"
)

const (
	// maxVerified is the most tokens that are remembered.
	maxVerified = 4096
	// maxToken is the most bytes of a token that is looked at.
	maxToken = 32 << 10
	// leeway is by how much clocks may differ.
	leeway = jwt.DefaultLeeway
	// lookupTimeout bounds the wait for a store that does not keep up.
	lookupTimeout = 5 * time.Second
)

// verified is what a token says whose signature is right. It is never changed.
type verified struct {
	public  jwt.Claims
	private kubernetes
	// held has the claims of a token that a Secret holds, in place of private; nil for others.
	held *secretClaims
	user *authn.User
}

// Verify returns whose a token is, and for which of the audiences; no audiences stand for the API server. For what is
// no token of this issuer there is neither a user nor an error.
func (a *Authority) Verify(
	ctx context.Context, token string, audiences []string,
) (u *authn.User, of []string, err error) {
	v, err := a.read(token)
	if v == nil || err != nil {
		return nil, nil, err
	}
	if v.held != nil {
		return a.verifyHeld(ctx, token, v, audiences)
	}
	now := a.cfg.Clock.Now()
	switch err := v.public.ValidateWithLeeway(jwt.Expected{Time: now}, leeway); {
	case errors.Is(err, jwt.ErrExpired):
		return nil, nil, errors.New("service account token has expired")
	case errors.Is(err, jwt.ErrNotValidYet), errors.Is(err, jwt.ErrIssuedInTheFuture):
		return nil, nil, errors.New("service account token is not valid yet")
	case err != nil:
		return nil, nil, errClaims
	}
	if len(audiences) == 0 {
		audiences = a.cfg.Audiences
	}
	for _, wanted := range audiences {
		if v.public.Audience.Contains(wanted) && !slices.Contains(of, wanted) {
			of = append(of, wanted)
		}
	}
	if len(of) == 0 {
		return nil, nil, fmt.Errorf("service account token is for %q, not for %q", []string(v.public.Audience), audiences)
	}
	if err := a.stands(ctx, v, now); err != nil {
		return nil, nil, err
	}
	if due := v.private.WarnAfter; due != nil && due.Time().Before(now) {
		audit.From(ctx).Annotate("authentication.k8s.io/stale-token", fmt.Sprintf(
			"subject: %s, seconds after warning threshold: %d", v.public.Subject, now.Unix()-due.Time().Unix()))
	}
	return v.user, of, nil
}

// read returns what a token says, once its signature was found right.
func (a *Authority) read(token string) (*verified, error) {
	if len(token) > maxToken || strings.Count(token, ".") != 2 {
		return nil, nil
	}
	digest := sha256.Sum256([]byte(token))
	a.mu.RLock()
	v := a.verified[digest]
	a.mu.RUnlock()
	if v != nil {
		return v, nil
	}
	issuer := claimed(token)
	if issuer != a.cfg.Issuer && issuer != secretIssuer {
		return nil, nil
	}
	v, err := a.verify(token, issuer)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.verified) >= maxVerified {
		clear(a.verified)
	}
	a.verified[digest] = v
	return v, nil
}

// claimed returns from which issuer a token claims to be. It proves nothing.
func claimed(token string) string {
	_, rest, _ := strings.Cut(token, ".")
	payload, _, _ := strings.Cut(rest, ".")
	text, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return ""
	}
	var said struct {
		Issuer string `json:"iss"`
	}
	if json.Unmarshal(text, &said) != nil {
		return ""
	}
	return said.Issuer
}

var (
	errSignature = errors.New("service account token is not signed by a key of this server")
	errClaims    = errors.New("service account token has claims that cannot be right")
)

func (a *Authority) verify(token, issuer string) (*verified, error) {
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return nil, errSignature
	}
	keys := a.cfg.Keys.Verifying
	if issuer == secretIssuer {
		keys = a.cfg.Keys.All
	}
	for _, key := range keys() {
		id, err := idOf(key)
		if err != nil {
			return nil, err
		}
		if len(parsed.Headers) != 1 || parsed.Headers[0].KeyID != id {
			continue
		}
		v, private, held := &verified{}, claims{}, secretClaims{}
		if parsed.Claims(key, &v.public, &private, &held) != nil {
			break
		}
		if v.public.Issuer == secretIssuer {
			if !held.complete(v.public.Subject) {
				return nil, errClaims
			}
			v.held, v.private = &held, kubernetes{Namespace: held.Namespace, Account: ref{held.Account, held.UID}}
			v.user = v.userOf()
			return v, nil
		}
		v.private = private.Kubernetes
		if v.public.Issuer != a.cfg.Issuer || v.public.Expiry == nil ||
			v.public.Subject != userPrefix+v.private.Namespace+":"+v.private.Account.Name {
			return nil, errClaims
		}
		v.user = v.userOf()
		return v, nil
	}
	return nil, errSignature
}

// userOf returns the user whose token it is.
func (v *verified) userOf() *authn.User {
	u := &authn.User{
		Name: v.public.Subject, UID: v.private.Account.UID,
		Groups: []string{accountsGroup, accountsGroup + ":" + v.private.Namespace, authn.AuthenticatedGroup},
		Extra:  make(map[string][]string),
	}
	set := func(key, value string) {
		if value != "" {
			u.Extra[key] = []string{value}
		}
	}
	if v.public.ID != "" {
		set(extraCredential, "JTI="+v.public.ID)
	}
	if p := v.private.Pod; p != nil {
		set(extraPodName, p.Name)
		set(extraPodUID, p.UID)
	}
	if n := v.private.Node; n != nil {
		set(extraNodeName, n.Name)
		set(extraNodeUID, n.UID)
	}
	return u
}

// stands says whether everything is there without which the token is not valid.
func (a *Authority) stands(ctx context.Context, v *verified, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	k := &v.private
	if err := a.there(ctx, corev1.ServiceAccountKind, k.Namespace, &k.Account, now); err != nil {
		return err
	}
	switch {
	case k.Pod != nil:
		return a.there(ctx, corev1.PodKind, k.Namespace, k.Pod, now)
	case k.Secret != nil:
		return a.there(ctx, corev1.SecretKind, k.Namespace, k.Secret, now)
	case k.Node != nil:
		return a.there(ctx, corev1.NodeKind, "", k.Node, now)
	}
	return nil
}

// there says whether an object is there, and the one that is meant.
func (a *Authority) there(ctx context.Context, kind *object.Kind, namespace string, r *ref, now time.Time) error {
	o, err := a.cfg.Objects.Get(ctx, store.Key{Kind: kind, Namespace: namespace, Name: r.Name}, "")
	switch {
	case apierrors.Is(err, apierrors.NotFound):
		return gone(kind)
	case err != nil:
		return err
	case o.GetMetadata().GetUid() != r.UID:
		return gone(kind)
	}
	if t := o.GetMetadata().GetDeletionTimestamp(); t != nil && time.Unix(t.GetSeconds(), 0).Before(now.Add(-leeway)) {
		return gone(kind)
	}
	return nil
}
