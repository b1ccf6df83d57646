// Package serviceaccounttoken is the controller that fills in Secrets of type kubernetes.io/service-account-token, for
// those who want a token without an end: the token of the service account that an annotation names, the certificate of
// the cluster's authority, and the namespace.
//
// What it guarantees: a key that is missing or empty comes back, a certificate that is not the authority's any more is
// replaced, and so is a token that this server has not signed. A Secret whose account is not there, or is another one
// than its annotation with the uid says, is deleted. What it does not do: it makes no such Secrets, and replaces no
// token that is good.
package serviceaccounttoken

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/internal/loop"
	"monoplane.dev/object"
	"monoplane.dev/rules/tokensecret"
)

// lookEvery is the time between two looks at a Secret: the certificate may be another.
const lookEvery = time.Hour

// byAccount is the index of Secrets by the namespace and name of their service account.
const byAccount = "account"

// Config describes the controller.
type Config struct {
	// Client acts as the identity system:controller:serviceaccount-token.
	Client *client.Client
	// Tokens makes the tokens.
	Tokens controller.Tokens
	// RootCA returns the certificate, PEM, as it is now; nil, or an empty one, for a server that nobody reaches over the
	// network.
	RootCA func() []byte
	// Logger is told about failures; nil discards.
	Logger *slog.Logger
}

// Controller fills in the Secrets. Run starts it.
type Controller struct {
	cfg    Config
	synced atomic.Bool

	secrets  *cache.Cache[*corev1.Secret]
	accounts *cache.Cache[*corev1.ServiceAccount]
}

// New returns the controller.
func New(cfg Config) (*Controller, error) {
	if cfg.Client == nil || cfg.Tokens == nil {
		return nil, errors.New("serviceaccount-token: no client, or nobody who signs")
	}
	if cfg.RootCA == nil {
		cfg.RootCA = func() []byte { return nil }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Controller{cfg: cfg}
	c.secrets = cache.New(cache.Config[*corev1.Secret]{
		Source: cache.Watch(cfg.Client.Secrets.Watch), FieldSelector: "type=" + tokensecret.Type, Logger: cfg.Logger,
		Indexes: map[string]func(*corev1.Secret) []string{byAccount: func(s *corev1.Secret) []string {
			return []string{accountOf(s).String()}
		}},
	})
	c.accounts = cache.New(cache.Config[*corev1.ServiceAccount]{
		Source: cache.Watch(cfg.Client.ServiceAccounts.Watch), Logger: cfg.Logger,
	})
	return c, nil
}

// accountOf returns whose token a Secret is to hold.
func accountOf(s *corev1.Secret) cache.Key {
	m := s.GetMetadata()
	return cache.Key{Namespace: m.GetNamespace(), Name: m.GetAnnotations()[tokensecret.Account]}
}

// Ready returns nil once the controller works.
func (c *Controller) Ready() error {
	if !c.synced.Load() {
		return errors.New("serviceaccount-token controller: reading the secrets with tokens")
	}
	return nil
}

// Run works until ctx ends, and returns ctx's error. It must be called once.
func (c *Controller) Run(ctx context.Context) error {
	queue := loop.New(loop.Config[cache.Key]{
		Name: "serviceaccount-token", Logger: c.cfg.Logger, Reconcile: c.reconcile,
	})
	add := func(s *corev1.Secret) { queue.Add(cache.KeyOf(s)) }
	c.secrets.AddHandler(cache.Handler[*corev1.Secret]{OnAdd: add, OnUpdate: func(_, s *corev1.Secret) { add(s) }})
	of := func(a *corev1.ServiceAccount) {
		for _, s := range c.secrets.ByIndex(byAccount, cache.KeyOf(a).String()) {
			add(s)
		}
	}
	c.accounts.AddHandler(cache.Handler[*corev1.ServiceAccount]{
		// An account that comes may be another of the name, whose predecessor's end was not seen.
		OnAdd: of, OnUpdate: func(_, a *corev1.ServiceAccount) { of(a) }, OnDelete: of,
	})
	return queue.Serve(ctx, &c.synced, []controller.Synced{c.secrets, c.accounts}, c.secrets.Run, c.accounts.Run)
}

func (c *Controller) reconcile(ctx context.Context, key cache.Key) (time.Duration, error) {
	s, ok := c.secrets.Get(key.Namespace, key.Name)
	if !ok || s.GetMetadata().GetDeletionTimestamp() != nil {
		return 0, nil
	}
	account, err := c.account(ctx, s)
	switch {
	case err != nil:
		return 0, err
	case account == nil:
		return 0, c.remove(ctx, s)
	default:
		return lookEvery, c.fill(ctx, s, account)
	}
}

// account returns the service account of a Secret, nil when there is none, or none of the uid. One that was made just
// before its Secret may not be in the cache yet.
func (c *Controller) account(ctx context.Context, s *corev1.Secret) (*corev1.ServiceAccount, error) {
	key, uid := accountOf(s), s.GetMetadata().GetAnnotations()[tokensecret.UID]
	meant := func(a *corev1.ServiceAccount) bool { return uid == "" || a.GetMetadata().GetUid() == uid }
	if a, ok := c.accounts.Get(key.Namespace, key.Name); ok && meant(a) {
		return a, nil
	}
	a, err := c.cfg.Client.ServiceAccounts.Get(ctx, &metav1.GetRequest{Namespace: key.Namespace, Name: key.Name})
	if apierrors.Is(err, apierrors.NotFound) || err == nil && !meant(a) {
		return nil, nil
	}
	return a, err
}

// remove deletes a Secret that is nobody's.
func (c *Controller) remove(ctx context.Context, s *corev1.Secret) error {
	m := s.GetMetadata()
	uid := m.GetUid()
	_, err := c.cfg.Client.Secrets.Delete(ctx, &metav1.DeleteRequest{
		Namespace: m.GetNamespace(), Name: m.GetName(),
		Options: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{Uid: &uid}},
	})
	return unlessChanged(err)
}

// fill puts into a Secret what it lacks. One that cannot be changed stays as it is.
func (c *Controller) fill(ctx context.Context, s *corev1.Secret, a *corev1.ServiceAccount) error {
	m := s.GetMetadata()
	lacks := make(map[string][]byte)
	if ca := c.cfg.RootCA(); len(ca) > 0 && !bytes.Equal(s.GetData()[tokensecret.CA], ca) {
		lacks[tokensecret.CA] = ca
	}
	if len(s.GetData()[tokensecret.Namespace]) == 0 {
		lacks[tokensecret.Namespace] = []byte(m.GetNamespace())
	}
	if !c.cfg.Tokens.Signed(string(s.GetData()[tokensecret.Token])) {
		token, err := c.cfg.Tokens.ForSecret(a, m.GetName())
		if err != nil {
			return fmt.Errorf("token for the secret: %w", err)
		}
		lacks[tokensecret.Token] = []byte(token)
	}
	if len(lacks) == 0 || s.GetImmutable() {
		return nil
	}
	next := object.Clone(s)
	if next.Data == nil {
		next.Data = make(map[string][]byte, len(lacks))
	}
	for k, v := range lacks {
		next.Data[k] = v
	}
	next.Metadata.Annotations[tokensecret.Account] = a.GetMetadata().GetName()
	next.Metadata.Annotations[tokensecret.UID] = a.GetMetadata().GetUid()
	_, err := c.cfg.Client.Secrets.Update(ctx, &corev1rpc.UpdateSecretRequest{
		Namespace: m.GetNamespace(), Name: m.GetName(), Object: next,
	})
	return unlessChanged(err)
}

// unlessChanged returns err, but not that the object is another or gone: the cache will tell.
func unlessChanged(err error) error {
	if apierrors.Is(err, apierrors.NotFound) || apierrors.Is(err, apierrors.Conflict) {
		return nil
	}
	return err
}
