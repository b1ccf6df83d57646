// Package rootca is the controller that puts the certificate of the cluster's authority into every active namespace,
// as the ConfigMap "kube-root-ca.crt": pods verify the API server with it. One that is deleted or changed is mended,
// and all of them follow when the certificate is renewed.
//
// What it does not do: it removes none. They go with their namespaces.
package rootca

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
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
)

const (
	// name is the name of the ConfigMap, and key its only key.
	name = "kube-root-ca.crt"
	key  = "ca.crt"

	annotation  = "kubernetes.io/description"
	description = "The authority whose certificate the API server shows. Written by Monoplane, which undoes changes."

	// lookEvery is the time between two looks at the certificate.
	lookEvery = time.Hour
)

// Config describes the controller.
type Config struct {
	// Client acts as the identity system:controller:rootca.
	Client *client.Client
	// RootCA returns the certificate, PEM, as it is now; nil, or an empty one, for a server that nobody reaches over the
	// network.
	RootCA func() []byte
	// Logger is told about failures; nil discards.
	Logger *slog.Logger
}

// Controller keeps the ConfigMaps. Run starts it.
type Controller struct {
	cfg    Config
	synced atomic.Bool
}

// New returns the controller.
func New(cfg Config) (*Controller, error) {
	if cfg.Client == nil {
		return nil, errors.New("rootca: no client")
	}
	if cfg.RootCA == nil {
		cfg.RootCA = func() []byte { return nil }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Controller{cfg: cfg}, nil
}

// Ready returns nil once the controller works.
func (c *Controller) Ready() error {
	if !c.synced.Load() {
		return errors.New("rootca controller: reading the namespaces")
	}
	return nil
}

// Run works until ctx ends, and returns ctx's error.
func (c *Controller) Run(ctx context.Context) error {
	namespaces := cache.New(cache.Config[*corev1.Namespace]{
		Source: cache.Watch(c.cfg.Client.Namespaces.Watch), Logger: c.cfg.Logger,
	})
	published := cache.New(cache.Config[*corev1.ConfigMap]{
		Source: cache.Watch(c.cfg.Client.ConfigMaps.Watch), FieldSelector: "metadata.name=" + name, Logger: c.cfg.Logger,
	})
	queue := loop.New(loop.Config[string]{
		Name: "rootca", Logger: c.cfg.Logger,
		Reconcile: func(ctx context.Context, namespace string) (time.Duration, error) {
			if m, ok := published.Get(namespace, name); ok && published.HasSynced() && c.right(m) {
				return 0, nil // if it changes, the cache will tell
			}
			if ns, ok := namespaces.Get("", namespace); !ok || ns.GetMetadata().GetDeletionTimestamp() != nil {
				return 0, nil
			}
			return 0, c.publish(ctx, namespace)
		},
	})
	of := func(m *corev1.ConfigMap) { queue.Add(m.GetMetadata().GetNamespace()) }
	namespaces.AddHandler(cache.Handler[*corev1.Namespace]{
		OnAdd: func(ns *corev1.Namespace) { queue.Add(ns.GetMetadata().GetName()) },
	})
	published.AddHandler(cache.Handler[*corev1.ConfigMap]{
		OnAdd: of, OnUpdate: func(_, m *corev1.ConfigMap) { of(m) }, OnDelete: of,
	})
	watchCertificate := func(ctx context.Context) error {
		return c.watchCertificate(ctx, func() {
			for _, ns := range namespaces.List("", nil) {
				queue.Add(ns.GetMetadata().GetName())
			}
		})
	}
	// Without what is published known every start would try to create it all.
	return queue.Serve(ctx, &c.synced, []controller.Synced{namespaces, published},
		namespaces.Run, published.Run, watchCertificate)
}

// watchCertificate calls renewed when the certificate is another, until ctx ends, and returns its error.
func (c *Controller) watchCertificate(ctx context.Context, renewed func()) error {
	known := c.cfg.RootCA()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if now := c.cfg.RootCA(); !bytes.Equal(now, known) {
			known = now
			renewed()
		}
	}
}

func (c *Controller) data() map[string]string { return map[string]string{key: string(c.cfg.RootCA())} }

// right says whether a ConfigMap is as it should be.
func (c *Controller) right(m *corev1.ConfigMap) bool {
	return maps.Equal(m.GetData(), c.data()) && len(m.GetBinaryData()) == 0 &&
		m.GetMetadata().GetAnnotations()[annotation] != ""
}

// publish makes the ConfigMap of a namespace, or mends it, by what it is now.
func (c *Controller) publish(ctx context.Context, namespace string) error {
	live, err := c.cfg.Client.ConfigMaps.Get(ctx, &metav1.GetRequest{Namespace: namespace, Name: name})
	switch {
	case apierrors.Is(err, apierrors.NotFound):
		return c.create(ctx, namespace)
	case err != nil:
		return err
	case c.right(live):
		return nil
	case live.GetImmutable():
		// It cannot be mended: it comes back once the cache has told that it is gone.
		uid := live.GetMetadata().GetUid()
		_, err = c.cfg.Client.ConfigMaps.Delete(ctx, &metav1.DeleteRequest{
			Namespace: namespace, Name: name, Options: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{Uid: &uid}},
		})
	default:
		next := object.Clone(live)
		next.Data, next.BinaryData = c.data(), nil
		if next.Metadata.Annotations == nil {
			next.Metadata.Annotations = make(map[string]string, 1)
		}
		next.Metadata.Annotations[annotation] = description
		_, err = c.cfg.Client.ConfigMaps.Update(ctx, &corev1rpc.UpdateConfigMapRequest{
			Namespace: namespace, Name: name, Object: next,
		})
	}
	if apierrors.Is(err, apierrors.NotFound) {
		return nil // the cache will tell
	}
	return err
}

// create makes the ConfigMap. That it is there already, or that the namespace is going, is as good.
func (c *Controller) create(ctx context.Context, namespace string) error {
	_, err := c.cfg.Client.ConfigMaps.Create(ctx, &corev1rpc.CreateConfigMapRequest{
		Namespace: namespace,
		Object: &corev1.ConfigMap{
			Metadata: &metav1.ObjectMeta{
				Name: name, Namespace: namespace, Annotations: map[string]string{annotation: description},
			},
			Data: c.data(),
		},
	})
	for _, fine := range []apierrors.Reason{apierrors.AlreadyExists, apierrors.NotFound, apierrors.Forbidden} {
		if apierrors.Is(err, fine) {
			return nil
		}
	}
	return err
}
