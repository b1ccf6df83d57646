// Package defaultstorageclass is the controller that gives a new cluster a storage class for claims that name none:
// directories of the nodes (see package persistentvolume), which are made for the first pod and removed with the
// claim.
//
// It does so once. An annotation of the namespace kube-system says which class that was; from then on the class is the
// user's, who may change or delete it, and it does not come back. A cluster that has a default class gets no other,
// and a class that is there stays as it is.
package defaultstorageclass

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	storagev1 "monoplane.dev/api/storage/v1"
	storagev1rpc "monoplane.dev/api/storage/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/client"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/object"
	"monoplane.dev/object/storage"
	"monoplane.dev/rules/rights"
)

const (
	// given is on the namespace kube-system: the class that the cluster was given.
	given  = "monoplane.dev/default-storage-class"
	system = "kube-system"
	// retryEvery is the time between two attempts.
	retryEvery = time.Second
)

// Declare describes the controller.
func Declare() controller.Declaration {
	return controller.Declaration{
		Name: "default-storage-class",
		Grants: []rights.Grant{
			{Verbs: "list create", Resources: "storageclasses"},
			{Verbs: "get update", Resources: "namespaces"},
		},
		New: func(e controller.Env) (controller.Component, error) {
			return New(Config{Client: e.Client, Name: e.Settings.DefaultStorageClass, Logger: e.Logger})
		},
	}
}

// Config describes the controller.
type Config struct {
	// Client acts as the identity system:controller:default-storage-class.
	Client *client.Client
	// Name is that of the class; empty for none.
	Name string
	// Logger is told about failures; nil discards.
	Logger *slog.Logger
}

// Controller gives the class. Run starts it.
type Controller struct {
	cfg  Config
	done atomic.Bool
}

// New returns the controller.
func New(cfg Config) (*Controller, error) {
	if cfg.Client == nil {
		return nil, errors.New("defaultstorageclass: no client")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Controller{cfg: cfg}, nil
}

// Ready returns nil once the class has been given.
func (c *Controller) Ready() error {
	if !c.done.Load() {
		return errors.New("default-storage-class controller: making the default storage class")
	}
	return nil
}

// Run gives the class, and returns ctx's error when ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	for {
		err := c.give(ctx)
		if err == nil {
			c.done.Store(true)
			<-ctx.Done()
			return ctx.Err()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !apierrors.Is(err, apierrors.Conflict) {
			c.cfg.Logger.Warn("making the default storage class failed", "error", err)
		}
		select {
		case <-time.After(retryEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// give makes the class unless that was done before, and notes it. Who is interrupted in between finds the class.
func (c *Controller) give(ctx context.Context) error {
	if c.cfg.Name == "" {
		return nil
	}
	ns, err := c.cfg.Client.Namespaces.Get(ctx, &metav1.GetRequest{Name: system})
	if err != nil || ns.GetMetadata().GetAnnotations()[given] == c.cfg.Name {
		return err
	}
	list, err := c.cfg.Client.StorageClasses.List(ctx, &metav1.ListRequest{})
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(list.GetItems(), func(s *storagev1.StorageClass) bool { return storage.IsDefault(s) }) {
		_, err := c.cfg.Client.StorageClasses.Create(ctx, &storagev1rpc.CreateStorageClassRequest{Object: c.class()})
		if err != nil && !apierrors.Is(err, apierrors.AlreadyExists) {
			return err
		}
	}
	next := object.Clone(ns)
	storage.Annotate(next, given, c.cfg.Name)
	_, err = c.cfg.Client.Namespaces.Update(ctx, &corev1rpc.UpdateNamespaceRequest{Object: next})
	return err
}

func (c *Controller) class() *storagev1.StorageClass {
	later, policy := storage.WaitForFirstConsumer, "Delete"
	return &storagev1.StorageClass{
		Metadata:    &metav1.ObjectMeta{Name: c.cfg.Name, Annotations: map[string]string{storage.DefaultClass: "true"}},
		Provisioner: storage.LocalProvisioner, VolumeBindingMode: &later, ReclaimPolicy: &policy,
	}
}
