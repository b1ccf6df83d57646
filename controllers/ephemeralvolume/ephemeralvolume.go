// Package ephemeralvolume is the controller that makes the claims of ephemeral volumes: one for each such volume of a
// pod, named after both, with the pod as its owner. When the pod is gone the claim goes, too.
//
//	pod with an ephemeral volume ──► claim POD-VOLUME ──► bound and scheduled like any other
//	pod gone, or another of its name ──► the claim is deleted
//
// What it guarantees: it never touches a claim that was not made for a pod. A pod whose claim has the name of another
// one waits until that is gone; the scheduler says so. A claim is deleted only after a live read has shown that its
// pod is gone, and only if it is still the same claim (DEL-11).
package ephemeralvolume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/internal/loop"
	"monoplane.dev/object"
	"monoplane.dev/object/storage"
)

// Config describes the controller.
type Config struct {
	// Client acts as the identity system:controller:ephemeral-volume.
	Client *client.Client
	// Shared has the pods and claims.
	Shared *controller.Shared
	// Logger is told about failures; nil discards.
	Logger *slog.Logger
}

// Controller makes and removes the claims. Run starts it.
type Controller struct {
	cfg    Config
	pods   *cache.Cache[*corev1.Pod]
	claims *cache.Cache[*corev1.PersistentVolumeClaim]
	queue  *loop.Loop[key]
	synced atomic.Bool
}

// key is a claim that a pod has, had or is to have.
type key struct{ namespace, pod, claim string }

// New returns the controller.
func New(cfg Config) (*Controller, error) {
	if cfg.Client == nil || cfg.Shared == nil {
		return nil, errors.New("ephemeralvolume: no client, or no shared caches")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Controller{
		cfg: cfg, pods: controller.Of[*corev1.Pod](cfg.Shared),
		claims: controller.Of[*corev1.PersistentVolumeClaim](cfg.Shared),
	}, nil
}

// Ready returns nil once the controller works.
func (c *Controller) Ready() error {
	if !c.synced.Load() {
		return errors.New("ephemeral-volume controller: reading the pods and claims")
	}
	return nil
}

// Run works until ctx ends, and returns ctx's error.
func (c *Controller) Run(ctx context.Context) error {
	c.queue = loop.New(loop.Config[key]{Name: "ephemeral-volume", Logger: c.cfg.Logger, Reconcile: c.reconcile})
	c.pods.AddHandler(cache.Handler[*corev1.Pod]{OnAdd: c.ofPod, OnDelete: c.ofPod})
	c.claims.AddHandler(cache.Handler[*corev1.PersistentVolumeClaim]{OnAdd: c.ofClaim, OnDelete: c.ofClaim})
	// Without the claims known every start would try to make them all.
	return c.queue.Serve(ctx, &c.synced, []controller.Synced{c.pods, c.claims})
}

func (c *Controller) ofPod(p *corev1.Pod) {
	for _, v := range p.GetSpec().GetVolumes() {
		if v.GetVolumeSource().GetEphemeral() != nil {
			m := p.GetMetadata()
			c.queue.Add(key{m.GetNamespace(), m.GetName(), storage.ClaimOf(p, v)})
		}
	}
}

func (c *Controller) ofClaim(o *corev1.PersistentVolumeClaim) {
	if owner := storage.PodOf(o); owner != nil {
		c.queue.Add(key{o.GetMetadata().GetNamespace(), owner.GetName(), o.GetMetadata().GetName()})
	}
}

func (c *Controller) reconcile(ctx context.Context, k key) (time.Duration, error) {
	p, _ := c.pods.Get(k.namespace, k.pod)
	claim, ok := c.claims.Get(k.namespace, k.claim)
	if !ok {
		return 0, c.create(ctx, p, k.claim)
	}
	owner, m := storage.PodOf(claim), claim.GetMetadata()
	switch {
	case owner == nil || owner.GetName() != k.pod:
		if volumeOf(p, k.claim) == nil {
			return 0, nil
		}
		return 0, fmt.Errorf("claim %s/%s was not made for pod %q, which needs it", k.namespace, k.claim, k.pod)
	case m.GetDeletionTimestamp() != nil, owner.GetUid() == p.GetMetadata().GetUid():
		return 0, nil
	default:
		return 0, c.remove(ctx, claim, owner)
	}
}

// volumeOf returns the ephemeral volume of a pod, which may be nil, whose claim has a name.
func volumeOf(p *corev1.Pod, claim string) *corev1.Volume {
	for _, v := range p.GetSpec().GetVolumes() {
		if v.GetVolumeSource().GetEphemeral() != nil && storage.ClaimOf(p, v) == claim {
			return v
		}
	}
	return nil
}

// create makes the claim of a pod, which may be nil, unless the pod is going. That it is there already, or that the
// namespace is going, is as good: the cache will tell.
func (c *Controller) create(ctx context.Context, p *corev1.Pod, claim string) error {
	v, m := volumeOf(p, claim), p.GetMetadata()
	if v == nil || m.GetDeletionTimestamp() != nil {
		return nil
	}
	t := v.GetVolumeSource().GetEphemeral().GetVolumeClaimTemplate()
	_, err := c.cfg.Client.PersistentVolumeClaims.Create(ctx, &corev1rpc.CreatePersistentVolumeClaimRequest{
		Namespace: m.GetNamespace(),
		Object: &corev1.PersistentVolumeClaim{
			Metadata: &metav1.ObjectMeta{
				Name: claim, Namespace: m.GetNamespace(),
				Labels: maps.Clone(t.GetMetadata().GetLabels()), Annotations: maps.Clone(t.GetMetadata().GetAnnotations()),
				OwnerReferences: []*metav1.OwnerReference{{
					ApiVersion: "v1", Kind: "Pod", Name: m.GetName(), Uid: m.GetUid(),
					Controller: proto.Bool(true), BlockOwnerDeletion: proto.Bool(true),
				}},
			},
			Spec: object.Clone(t.GetSpec()),
		},
	})
	for _, fine := range []apierrors.Reason{apierrors.AlreadyExists, apierrors.NotFound, apierrors.Forbidden} {
		if apierrors.Is(err, fine) {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("make claim %q of pod %s/%s: %w", claim, m.GetNamespace(), m.GetName(), err)
	}
	return nil
}

// remove deletes the claim of a pod that is gone, of which a live read must not know.
func (c *Controller) remove(
	ctx context.Context, claim *corev1.PersistentVolumeClaim, owner *metav1.OwnerReference,
) error {
	m := claim.GetMetadata()
	p, err := c.cfg.Client.Pods.Get(ctx, &metav1.GetRequest{Namespace: m.GetNamespace(), Name: owner.GetName()})
	if err != nil && !apierrors.Is(err, apierrors.NotFound) {
		return fmt.Errorf("look for the pod of claim %s/%s: %w", m.GetNamespace(), m.GetName(), err)
	}
	if err == nil && p.GetMetadata().GetUid() == owner.GetUid() {
		return nil // the cache is behind, and will come
	}
	uid := m.GetUid()
	_, err = c.cfg.Client.PersistentVolumeClaims.Delete(ctx, &metav1.DeleteRequest{
		Namespace: m.GetNamespace(), Name: m.GetName(),
		Options: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{Uid: &uid}},
	})
	if err != nil && !apierrors.Is(err, apierrors.NotFound) && !apierrors.Is(err, apierrors.Conflict) {
		return fmt.Errorf("delete claim %s/%s of a pod that is gone: %w", m.GetNamespace(), m.GetName(), err)
	}
	return nil
}
