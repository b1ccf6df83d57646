package persistentvolume

import (
	corev1 "monoplane.dev/api/core/v1"
	storagev1 "monoplane.dev/api/storage/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/object/storage"
	"monoplane.dev/rules/phase"
)

// The indexes.
const (
	// byWish finds claims that are not bound by what they wait for: see classWish and volumeWish.
	byWish = "wish"
	// byClaim finds volumes by the claim in claimRef.
	byClaim = "claim"
)

func classWish(class string) string { return "class/" + class }

func volumeWish(volume string) string { return "volume/" + volume }

// watch makes the caches of its own, and has everything looked at that a change may concern.
func (c *Controller) watch() {
	api, logger := c.cfg.Client, c.cfg.Logger
	c.claims = cache.New(cache.Config[*corev1.PersistentVolumeClaim]{
		Source: cache.Watch(api.PersistentVolumeClaims.Watch), Logger: logger,
		Indexes: map[string]func(*corev1.PersistentVolumeClaim) []string{byWish: wishes},
	})
	c.volumes = cache.New(cache.Config[*corev1.PersistentVolume]{
		Source: cache.Watch(api.PersistentVolumes.Watch), Logger: logger,
		Indexes: map[string]func(*corev1.PersistentVolume) []string{byClaim: func(v *corev1.PersistentVolume) []string {
			if v.GetSpec().GetClaimRef() == nil {
				return nil
			}
			return []string{claimOf(v).String()}
		}},
	})
	c.classes = cache.New(cache.Config[*storagev1.StorageClass]{Source: cache.Watch(api.StorageClasses.Watch),
		Logger: logger})
	c.claims.AddHandler(cache.Handler[*corev1.PersistentVolumeClaim]{
		OnAdd: c.claimChanged, OnUpdate: func(_, o *corev1.PersistentVolumeClaim) { c.claimChanged(o) },
		OnDelete: c.claimChanged,
	})
	c.volumes.AddHandler(cache.Handler[*corev1.PersistentVolume]{
		OnAdd: c.volumeChanged, OnDelete: c.volumeChanged,
		OnUpdate: func(old, v *corev1.PersistentVolume) {
			if old.GetSpec().GetClaimRef() != nil {
				c.enqueue(claimOf(old))
			}
			c.volumeChanged(v)
		},
	})
	c.classes.AddHandler(cache.Handler[*storagev1.StorageClass]{
		OnAdd: c.classChanged, OnUpdate: func(_, o *storagev1.StorageClass) { c.classChanged(o) },
	})
	c.pods.AddHandler(cache.Handler[*corev1.Pod]{
		OnAdd: c.podChanged, OnDelete: c.podChanged,
		OnUpdate: func(old, p *corev1.Pod) {
			if uses(old) != uses(p) {
				c.podChanged(p)
			}
		},
	})
}

// wishes returns what a claim waits for.
func wishes(c *corev1.PersistentVolumeClaim) []string {
	if storage.Has(c, storage.BindCompleted) {
		return nil
	}
	if name := c.GetSpec().GetVolumeName(); name != "" {
		return []string{volumeWish(name)}
	}
	return []string{classWish(storage.ClassOfClaim(c))}
}

// claimOf returns the key of the claim that a volume's claimRef names.
func claimOf(v *corev1.PersistentVolume) cache.Key {
	ref := v.GetSpec().GetClaimRef()
	return cache.Key{Namespace: ref.GetNamespace(), Name: ref.GetName()}
}

func (c *Controller) enqueue(k cache.Key) { c.queue.Add(item{k}) }

// claimChanged has a claim looked at, the volume that it names, and those that name it.
func (c *Controller) claimChanged(o *corev1.PersistentVolumeClaim) {
	key := cache.KeyOf(o)
	c.enqueue(key)
	if name := o.GetSpec().GetVolumeName(); name != "" {
		c.enqueue(cache.Key{Name: name})
	}
	for _, v := range c.volumes.ByIndex(byClaim, key.String()) {
		c.enqueue(cache.KeyOf(v))
	}
}

// volumeChanged has a volume looked at, its claim, and the claims that wait for one like it.
func (c *Controller) volumeChanged(v *corev1.PersistentVolume) {
	c.enqueue(cache.KeyOf(v))
	if v.GetSpec().GetClaimRef() != nil {
		c.enqueue(claimOf(v))
	} else {
		c.wanting(classWish(storage.ClassOfVolume(v)))
	}
	c.wanting(volumeWish(v.GetMetadata().GetName()))
}

func (c *Controller) wanting(wish string) {
	for _, o := range c.claims.ByIndex(byWish, wish) {
		c.enqueue(cache.KeyOf(o))
	}
}

func (c *Controller) classChanged(o *storagev1.StorageClass) {
	c.wanting(classWish(o.GetMetadata().GetName()))
	if storage.IsDefault(o) {
		c.wanting(classWish(""))
	}
}

func (c *Controller) podChanged(p *corev1.Pod) {
	for _, name := range storage.ClaimNames(p) {
		c.enqueue(cache.Key{Namespace: p.GetMetadata().GetNamespace(), Name: name})
	}
}

// uses says whether a pod uses its claims: it has a node, and has not ended.
func uses(p *corev1.Pod) bool {
	return p.GetSpec().GetNodeName() != "" && !phase.Terminal(p)
}
