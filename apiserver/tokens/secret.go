package tokens

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"

	"github.com/go-jose/go-jose/v4/jwt"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/audit"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/object"
	"monoplane.dev/rules/tokensecret"

	corev1 "monoplane.dev/api/core/v1"
)

const (
	// secretIssuer is the issuer of the tokens that Secrets hold.
	secretIssuer = "kubernetes/serviceaccount"
	// invalidSince is the label of a Secret whose token is not accepted, though it is there.
	invalidSince = "kubernetes.io/legacy-token-invalid-since"
)

// secretClaims are those of a token that a Secret holds, as Kubernetes has them.
type secretClaims struct {
	Namespace string `json:"kubernetes.io/serviceaccount/namespace"`
	Secret    string `json:"kubernetes.io/serviceaccount/secret.name"`
	Account   string `json:"kubernetes.io/serviceaccount/service-account.name"`
	UID       string `json:"kubernetes.io/serviceaccount/service-account.uid"`
}

// complete says whether the claims are all there, and are of the one whom the token is about.
func (c *secretClaims) complete(subject string) bool {
	return c.Namespace != "" && c.Secret != "" && c.Account != "" && c.UID != "" &&
		subject == userPrefix+c.Namespace+":"+c.Account
}

// ForSecret returns the token of a service account that a Secret of its namespace is to hold. It has no end but that
// of the Secret, which must hold this very token, and of the account.
func (a *Authority) ForSecret(account *corev1.ServiceAccount, secret string) (string, error) {
	m := account.GetMetadata()
	return a.sign(
		secretClaims{Namespace: m.GetNamespace(), Secret: secret, Account: m.GetName(), UID: m.GetUid()},
		jwt.Claims{Issuer: secretIssuer, Subject: userPrefix + m.GetNamespace() + ":" + m.GetName()},
	)
}

// Signed says whether a text is a token that a Secret may hold and that this server has signed.
func (a *Authority) Signed(token string) bool {
	v, err := a.read(token)
	return err == nil && v != nil && v.held != nil
}

// verifyHeld is Verify for a token that a Secret holds.
func (a *Authority) verifyHeld(
	ctx context.Context, token string, v *verified, audiences []string,
) (u *authn.User, of []string, err error) {
	if of = slices.Clone(a.cfg.Audiences); len(audiences) > 0 {
		of = slices.DeleteFunc(of, func(own string) bool { return !slices.Contains(audiences, own) })
	}
	if len(of) == 0 {
		return nil, nil, errors.New("the token of a secret is for the API server alone")
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	o, err := a.present(ctx, corev1.SecretKind, v.held.Namespace, v.held.Secret)
	if err != nil {
		return nil, nil, err
	}
	secret := o.(*corev1.Secret)
	if subtle.ConstantTimeCompare(secret.GetData()[tokensecret.Token], []byte(token)) == 0 {
		return nil, nil, errors.New("service account token has been invalidated: its secret holds another")
	}
	account, err := a.present(ctx, corev1.ServiceAccountKind, v.held.Namespace, v.held.Account)
	if err != nil {
		return nil, nil, err
	}
	if account.GetMetadata().GetUid() != v.held.UID {
		return nil, nil, gone(corev1.ServiceAccountKind)
	}
	trail, name := audit.From(ctx), secret.GetMetadata().GetName()
	trail.Annotate("authentication.k8s.io/legacy-token", v.public.Subject)
	if secret.GetMetadata().GetLabels()[invalidSince] != "" {
		trail.Annotate("authentication.k8s.io/legacy-token-invalidated", name+"/"+v.held.Namespace)
		return nil, nil, fmt.Errorf("service account token has been invalidated: its secret has label %s", invalidSince)
	}
	trail.Annotate("authentication.k8s.io/legacy-token-manual-secret", name)
	return v.user, of, nil
}

// present returns an object without which a token is not valid, and which is not being deleted.
func (a *Authority) present(ctx context.Context, kind *object.Kind, namespace, name string) (object.Object, error) {
	o, err := a.cfg.Objects.Get(ctx, store.Key{Kind: kind, Namespace: namespace, Name: name}, "")
	switch {
	case apierrors.Is(err, apierrors.NotFound), err == nil && o.GetMetadata().GetDeletionTimestamp() != nil:
		return nil, gone(kind)
	default:
		return o, err
	}
}

func gone(kind *object.Kind) error {
	return fmt.Errorf("service account token has been invalidated: its %s is gone", kind.Singular)
}
