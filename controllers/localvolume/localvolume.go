// Package localvolume is the controller that ends the volumes which package persistentvolume has made in the own
// directories of nodes, once their claims are gone and their policy is Delete:
//
//	Released --> the node's agent removes the directory --> the volume is deleted
//
// Each step can be repeated, so that whoever dies in between leaves nothing behind: a volume is there as long as its
// directory may be. It has no finalizer but the one that every volume has (pv-protection), which stays as long. A
// volume whose Node has been deleted goes by itself.
//
// It works in every server: an agent is asked by the server that it is connected to.
//
// What it does not do: it decides about no volume that a claim has, nor about directories that are not the node's own;
// see storage.LeftToNode.
package localvolume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/record"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/internal/loop"
	"monoplane.dev/object"
	"monoplane.dev/object/storage"
	"monoplane.dev/rules/rights"
)

// askEvery is the time between two attempts to reach an agent that is away, is connected to another server, or has not
// yet taken the volume from its last pod, which may be gone from the API by then.
const askEvery = 5 * time.Second

// Declare describes the controller.
func Declare() controller.Declaration {
	return controller.Declaration{
		Name: "localvolume",
		Grants: []rights.Grant{
			{Verbs: rights.Read + " update delete", Resources: "persistentvolumes"},
			{Verbs: "get", Resources: "nodes"},
		},
		EveryServer: true,
		New: func(e controller.Env) (controller.Component, error) {
			return New(Config{Client: e.Client, RemoveVolume: e.Settings.RemoveVolume, Logger: e.Logger})
		},
	}
}

// Config describes the controller.
type Config struct {
	// Client acts as the identity system:controller:localvolume.
	Client *client.Client
	// RemoveVolume is that of controller.Settings.
	RemoveVolume func(ctx context.Context, node, volume string) error
	// Logger is told what is deleted, and about failures; nil discards.
	Logger *slog.Logger
}

// Controller ends volumes. Run starts it.
type Controller struct {
	cfg     Config
	events  *record.Recorder
	volumes *cache.Cache[*corev1.PersistentVolume]
	synced  atomic.Bool
}

// New returns the controller.
func New(cfg Config) (*Controller, error) {
	if cfg.Client == nil || cfg.RemoveVolume == nil {
		return nil, errors.New("localvolume: no client, or nobody who removes directories")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Controller{cfg: cfg, events: record.New(record.Config{
		Events: cfg.Client.Events, Controller: "persistentvolume-controller", Logger: cfg.Logger,
	})}, nil
}

// Ready returns nil once the controller works.
func (c *Controller) Ready() error {
	if !c.synced.Load() {
		return errors.New("localvolume controller: reading the volumes")
	}
	return nil
}

// Run works until ctx ends, and returns ctx's error. It must be called once.
func (c *Controller) Run(ctx context.Context) error {
	c.volumes = cache.New(cache.Config[*corev1.PersistentVolume]{
		Source: cache.Watch(c.cfg.Client.PersistentVolumes.Watch), Logger: c.cfg.Logger,
	})
	queue := loop.New(loop.Config[string]{Name: "localvolume", Reconcile: c.reconcile, Logger: c.cfg.Logger})
	changed := func(v *corev1.PersistentVolume) {
		if storage.LeftToNode(v) != "" {
			queue.Add(v.GetMetadata().GetName())
		}
	}
	c.volumes.AddHandler(cache.Handler[*corev1.PersistentVolume]{
		OnAdd: changed, OnUpdate: func(_, v *corev1.PersistentVolume) { changed(v) },
	})
	return queue.Serve(ctx, &c.synced, []controller.Synced{c.volumes}, c.volumes.Run, c.events.Run)
}

// reconcile ends a volume, if the server says that it is to end.
func (c *Controller) reconcile(ctx context.Context, name string) (again time.Duration, err error) {
	if v, ok := c.volumes.Get("", name); !ok || storage.LeftToNode(v) == "" {
		return 0, nil
	}
	v, err := c.cfg.Client.PersistentVolumes.Get(ctx, &metav1.GetRequest{Name: name})
	if apierrors.Is(err, apierrors.NotFound) {
		return 0, nil
	}
	node := storage.LeftToNode(v)
	if err != nil || node == "" {
		return 0, err
	}
	n, err := c.cfg.Client.Nodes.Get(ctx, &metav1.GetRequest{Name: node})
	switch {
	case apierrors.Is(err, apierrors.NotFound):
		c.cfg.Logger.Info("a volume goes with its node", "volume", name, "node", node)
	case err != nil:
		return 0, fmt.Errorf("read node %s: %w", node, err)
	case storage.Has(n, storage.DirectoryOfVolumes):
		err = c.cfg.RemoveVolume(ctx, node, name)
		if apierrors.Is(err, apierrors.ServiceUnavailable) || apierrors.Is(err, apierrors.Conflict) {
			return askEvery, nil
		}
		if err != nil {
			c.events.Event(v, record.Warning, "VolumeFailedDelete", "Reclaiming", err.Error())
			return 0, fmt.Errorf("remove the directory of volume %s on node %s: %w", name, node, err)
		}
	}
	return 0, c.end(ctx, v)
}

// end deletes a volume that has no directory any more; of one that is being deleted already it takes the protection.
func (c *Controller) end(ctx context.Context, v *corev1.PersistentVolume) error {
	m, api := v.GetMetadata(), c.cfg.Client.PersistentVolumes
	if m.GetDeletionTimestamp() == nil {
		_, err := api.Delete(ctx, &metav1.DeleteRequest{Name: m.GetName(), Options: &metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{Uid: &m.Uid, ResourceVersion: &m.ResourceVersion},
		}})
		if err != nil {
			return fmt.Errorf("delete volume %s: %w", m.GetName(), err)
		}
		c.cfg.Logger.Info("deleted a volume whose claim is gone", "volume", m.GetName(), "uid", m.GetUid())
		return nil // if it is protected, the change brings us here again
	}
	at := slices.Index(m.GetFinalizers(), storage.VolumeProtection)
	if at < 0 {
		return nil
	}
	next := object.Clone(v)
	next.Metadata.Finalizers = slices.Delete(next.Metadata.Finalizers, at, at+1)
	_, err := api.Update(ctx, &corev1rpc.UpdatePersistentVolumeRequest{Object: next})
	return err
}
