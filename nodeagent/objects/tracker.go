package objects

import (
	"bytes"
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/rules/podrefs"
)

// Config says what a Tracker works with. Client and Spawn are required.
type Config struct {
	// Client reaches the API.
	Client *client.Client
	// Spawn runs a function on a goroutine of its own, with a context that ends when the agent does. It may drop the
	// function instead when the agent has ended.
	Spawn func(func(ctx context.Context))
	// OnChange is told that something has changed to which pods refer; nil tells nobody. The calls come from several
	// goroutines, and hold up news of the same object alone.
	OnChange func(podUIDs []string)
	// Patience is how long a read waits for the first answer about an object; 10 s when zero.
	Patience time.Duration
}

// Tracker is a Source that knows the node's pods. It is safe for concurrent use. Use New.
type Tracker struct {
	configMaps kind[*corev1.ConfigMap]
	secrets    kind[*corev1.Secret]
	direct     Source

	mu sync.Mutex // held also while kinds are told of a pod, so that a pod's references are as it was told last
	// pods holds, by uid, what pods refer to; none that refers to nothing. It is nil until there is one.
	pods map[string]refs
}

// refs is what a pod refers to, by names in its namespace: each once, in order.
type refs struct {
	namespace           string
	configMaps, secrets []string
}

// New returns a Tracker that knows no pods.
func New(cfg Config) *Tracker {
	if cfg.Patience <= 0 {
		cfg.Patience = 10 * time.Second
	}
	if cfg.OnChange == nil {
		cfg.OnChange = func([]string) {}
	}
	return &Tracker{
		direct: Direct(cfg.Client),
		configMaps: kind[*corev1.ConfigMap]{
			cfg: cfg, kind: corev1.ConfigMapKind, source: cache.Watch(cfg.Client.ConfigMaps.Watch),
			same: func(a, b *corev1.ConfigMap) bool {
				return maps.Equal(a.GetData(), b.GetData()) && maps.EqualFunc(a.GetBinaryData(), b.GetBinaryData(), bytes.Equal)
			},
		},
		secrets: kind[*corev1.Secret]{
			cfg: cfg, kind: corev1.SecretKind, source: cache.Watch(cfg.Client.Secrets.Watch),
			same: func(a, b *corev1.Secret) bool {
				return a.GetType() == b.GetType() && maps.EqualFunc(a.GetData(), b.GetData(), bytes.Equal)
			},
		},
	}
}

// Track says that a pod is on the node, as it is now. It costs little for one that refers to nothing, or to the same
// as before.
func (t *Tracker) Track(p *corev1.Pod) {
	now := refs{
		namespace:  p.GetMetadata().GetNamespace(),
		configMaps: unique(podrefs.ConfigMaps(p.GetSpec())), secrets: unique(podrefs.Secrets(p.GetSpec())),
	}
	t.set(p.GetMetadata().GetUid(), now)
}

// Forget says that a pod is gone from the node, or needs nothing any more.
func (t *Tracker) Forget(uid string) { t.set(uid, refs{}) }

func (t *Tracker) set(uid string, now refs) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was, had := t.pods[uid]
	if now.namespace == "" {
		now.namespace = was.namespace
	}
	t.configMaps.refer(uid, now.namespace, was.configMaps, now.configMaps)
	t.secrets.refer(uid, now.namespace, was.secrets, now.secrets)
	switch {
	case len(now.configMaps)+len(now.secrets) > 0:
		if t.pods == nil {
			t.pods = make(map[string]refs)
		}
		t.pods[uid] = now
	case had:
		delete(t.pods, uid)
	}
}

// unique returns names in order, each once; nil for none.
func unique(names iter.Seq[string]) []string { return slices.Compact(slices.Sorted(names)) }

// ConfigMap implements Source. What no pod refers to is asked of the API each time.
func (t *Tracker) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	if f := t.configMaps.lookup(namespace, name); f != nil {
		return f.get(ctx)
	}
	return t.direct.ConfigMap(ctx, namespace, name)
}

// Secret implements Source. What no pod refers to, such as the Secrets of volumes, is asked of the API each time.
func (t *Tracker) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	if f := t.secrets.lookup(namespace, name); f != nil {
		return f.get(ctx)
	}
	return t.direct.Secret(ctx, namespace, name)
}
