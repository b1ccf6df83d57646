// Package serviceaccount is the controller that gives every active namespace its service account "default", which
// pods name when they name none. A deleted one comes back.
//
// What it does not do: it issues no tokens.
package serviceaccount

import (
	"context"
	"errors"
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
	"monoplane.dev/object/builtin"
)

// Name is the name of the service account that every namespace has.
const Name = "default"

// Config describes the controller.
type Config struct {
	// Client acts as the identity system:controller:serviceaccount.
	Client *client.Client
	// Logger is told about failures; nil discards.
	Logger *slog.Logger
}

// Controller keeps the service accounts. Run starts it.
type Controller struct {
	cfg    Config
	synced atomic.Bool
	// begun: the namespace that every cluster has was looked at.
	begun atomic.Bool
}

// New returns the controller.
func New(cfg Config) (*Controller, error) {
	if cfg.Client == nil {
		return nil, errors.New("serviceaccount: no client")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Controller{cfg: cfg}, nil
}

// Ready returns nil once the controller works, and has seen to the namespace that every cluster has: who waits for a
// cluster to be ready may make pods there at once.
func (c *Controller) Ready() error {
	switch {
	case !c.synced.Load():
		return errors.New("serviceaccount controller: reading the namespaces")
	case !c.begun.Load():
		return errors.New("serviceaccount controller: making the service account of namespace " + builtin.Default)
	default:
		return nil
	}
}

// Run works until ctx ends, and returns ctx's error.
func (c *Controller) Run(ctx context.Context) error {
	namespaces := cache.New(cache.Config[*corev1.Namespace]{
		Source: cache.Watch(c.cfg.Client.Namespaces.Watch), Logger: c.cfg.Logger,
	})
	accounts := cache.New(cache.Config[*corev1.ServiceAccount]{
		Source: cache.Watch(c.cfg.Client.ServiceAccounts.Watch), FieldSelector: "metadata.name=" +
			Name, Logger: c.cfg.Logger,
	})
	queue := loop.New(loop.Config[string]{
		Name: "serviceaccount", Logger: c.cfg.Logger,
		Reconcile: func(ctx context.Context, namespace string) (_ time.Duration, err error) {
			defer func() {
				if err == nil && namespace == builtin.Default {
					c.begun.Store(true)
				}
			}()
			if _, ok := accounts.Get(namespace, Name); ok && accounts.HasSynced() {
				return 0, nil // if it is deleted, the cache will tell
			}
			if ns, ok := namespaces.Get("", namespace); !ok || ns.GetMetadata().GetDeletionTimestamp() != nil {
				return 0, nil
			}
			return 0, c.create(ctx, namespace)
		},
	})
	add := func(ns *corev1.Namespace) { queue.Add(ns.GetMetadata().GetName()) }
	namespaces.AddHandler(cache.Handler[*corev1.Namespace]{OnAdd: add})
	accounts.AddHandler(cache.Handler[*corev1.ServiceAccount]{
		OnDelete: func(a *corev1.ServiceAccount) { queue.Add(a.GetMetadata().GetNamespace()) },
	})
	// Without the accounts known every start would try to create them all.
	return queue.Serve(ctx, &c.synced, []controller.Synced{namespaces, accounts}, namespaces.Run, accounts.Run)
}

// create makes the account. That it is there already, or that the namespace is going, is as good.
func (c *Controller) create(ctx context.Context, namespace string) error {
	_, err := c.cfg.Client.ServiceAccounts.Create(ctx, &corev1rpc.CreateServiceAccountRequest{
		Namespace: namespace,
		Object:    &corev1.ServiceAccount{Metadata: &metav1.ObjectMeta{Name: Name, Namespace: namespace}},
	})
	for _, fine := range []apierrors.Reason{apierrors.AlreadyExists, apierrors.NotFound, apierrors.Forbidden} {
		if apierrors.Is(err, fine) {
			return nil
		}
	}
	return err
}
