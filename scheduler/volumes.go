package scheduler

import (
	"maps"

	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	storagev1 "monoplane.dev/api/storage/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/object"
	"monoplane.dev/object/storage"
	"monoplane.dev/scheduler/framework"
	"monoplane.dev/scheduler/plugins/volumebinding"
)

// storageCaches are the kinds that pods' volumes depend on.
type storageCaches struct {
	claims  *cache.Cache[*corev1.PersistentVolumeClaim]
	volumes *cache.Cache[*corev1.PersistentVolume]
	classes *cache.Cache[*storagev1.StorageClass]
}

// newStorageCaches returns caches that feed the state and the queue.
func (s *Scheduler) newStorageCaches() storageCaches {
	api, logger := s.cfg.Client, s.cfg.Logger
	c := storageCaches{
		claims: cache.New(cache.Config[*corev1.PersistentVolumeClaim]{Source: cache.Watch(api.PersistentVolumeClaims.Watch),
			Logger: logger}),
		volumes: cache.New(cache.Config[*corev1.PersistentVolume]{Source: cache.Watch(api.PersistentVolumes.Watch),
			Logger: logger}),
		classes: cache.New(cache.Config[*storagev1.StorageClass]{Source: cache.Watch(api.StorageClasses.Watch),
			Logger: logger}),
	}
	c.claims.AddHandler(cache.Handler[*corev1.PersistentVolumeClaim]{
		OnAdd: func(o *corev1.PersistentVolumeClaim) { s.claim(nil, o) }, OnUpdate: s.claim,
		OnDelete: s.claimDeleted,
	})
	c.volumes.AddHandler(cache.Handler[*corev1.PersistentVolume]{
		OnAdd: func(v *corev1.PersistentVolume) { s.volume(nil, v) }, OnUpdate: s.volume,
		OnDelete: s.volumeDeleted,
	})
	c.classes.AddHandler(cache.Handler[*storagev1.StorageClass]{
		OnAdd: func(o *storagev1.StorageClass) { s.class(nil, o) }, OnUpdate: s.class,
		OnDelete: func(o *storagev1.StorageClass) { s.state.SetClass(o.GetMetadata().GetName(), nil) },
	})
	return c
}

// claim takes a newer state of a claim; old is nil when it is new.
func (s *Scheduler) claim(old, o *corev1.PersistentVolumeClaim) {
	s.state.SetClaim(cache.KeyOf(o), framework.NewClaimInfo(o))
	s.queue.Change(framework.Change{Event: framework.ClaimChanged, Claim: o, OldClaim: old})
	s.news.Tell(framework.Subject{Kind: framework.ClaimSubject, Key: cache.KeyOf(o)})
}

// claimDeleted takes the end of a claim, which helps no pod that waits for a node.
func (s *Scheduler) claimDeleted(o *corev1.PersistentVolumeClaim) {
	s.state.SetClaim(cache.KeyOf(o), nil)
	s.news.Tell(framework.Subject{Kind: framework.ClaimSubject, Key: cache.KeyOf(o)})
}

// volume takes a newer state of a volume; old is nil when it is new.
func (s *Scheduler) volume(old, v *corev1.PersistentVolume) {
	s.state.SetVolume(v.GetMetadata().GetName(), volumebinding.Volume(v))
	if old == nil || !sameVolume(old, v) {
		s.queue.Change(framework.Change{Event: framework.VolumeChanged, Volume: v, OldVolume: old})
		s.news.Tell(framework.Subject{Kind: framework.VolumeSubject, Key: cache.KeyOf(v)})
	}
}

// volumeDeleted takes the end of a volume, which helps no pod that waits for a node.
func (s *Scheduler) volumeDeleted(v *corev1.PersistentVolume) {
	s.state.SetVolume(v.GetMetadata().GetName(), nil)
	s.news.Tell(framework.Subject{Kind: framework.VolumeSubject, Key: cache.KeyOf(v)})
}

// sameVolume says whether nothing that a decision depends on differs between two states of a volume.
func sameVolume(a, b *corev1.PersistentVolume) bool {
	return going(a) == going(b) && a.GetStatus().GetPhase() == b.GetStatus().GetPhase() &&
		maps.Equal(a.GetMetadata().GetLabels(), b.GetMetadata().GetLabels()) && proto.Equal(a.GetSpec(), b.GetSpec()) &&
		storage.ClassOfVolume(a) == storage.ClassOfVolume(b)
}

func going(o object.Object) bool { return o.GetMetadata().GetDeletionTimestamp() != nil }

// class takes a newer state of a storage class; old is nil when it is new.
func (s *Scheduler) class(old, o *storagev1.StorageClass) {
	s.state.SetClass(o.GetMetadata().GetName(), o)
	s.queue.Change(framework.Change{Event: framework.ClassChanged, Class: o, OldClass: old})
}
