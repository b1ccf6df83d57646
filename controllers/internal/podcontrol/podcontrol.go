// Package podcontrol makes and deletes the pods of those who keep a number of them, tells it in events, and remembers
// what was written until the cache of pods has it.
//
// What it guarantees: who calls Settle before judging an owner's pods by the cache sees all that was made and deleted
// for that owner before, so that nothing is made or deleted twice. A pod is deleted by its uid, never a successor.
// Many pods are made slowly at first, so that a template which is refused costs one request and not hundreds.
//
// What it does not do: it does not decide which pods are made and deleted, and does not try again.
package podcontrol

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/validation"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/record"
	"monoplane.dev/controllers/internal/owned"
	"monoplane.dev/controllers/internal/writes"
	"monoplane.dev/object"
)

// The bounds of Control.
const (
	// parallel is how many pods are made or deleted at once.
	parallel = 64
	// maxPrefix is the longest name of which a pod's name is made.
	maxPrefix = 253
)

// Control makes and deletes pods. Use New.
type Control struct {
	*writes.Memory[*corev1.Pod]

	pods   corev1rpc.PodsClient
	events *record.Recorder
}

// New returns a Control that writes pods, which show up in a cache, and events.
func New(pods corev1rpc.PodsClient, seen *cache.Cache[*corev1.Pod], events *record.Recorder) *Control {
	return &Control{Memory: writes.New(seen), pods: pods, events: events}
}

// FromTemplate returns a pod of a template with an owner, whose name the server completes.
func FromTemplate(owner object.Object, t *corev1.PodTemplateSpec) *corev1.Pod {
	m := t.GetMetadata()
	return &corev1.Pod{
		Metadata: &metav1.ObjectMeta{
			Namespace:       owner.GetMetadata().GetNamespace(),
			GenerateName:    prefix(owner.GetMetadata().GetName()),
			Labels:          maps.Clone(m.GetLabels()),
			Annotations:     maps.Clone(m.GetAnnotations()),
			Finalizers:      slices.Clone(m.GetFinalizers()),
			OwnerReferences: []*metav1.OwnerReference{owned.Reference(owner)},
		},
		Spec: t.GetSpec(), // shared: the server copies what it is sent
	}
}

// prefix returns what the names of an owner's pods begin with.
func prefix(name string) string {
	if p := name + "-"; len(p) <= maxPrefix && len(validation.IsDNS1123Subdomain(p+"x")) == 0 {
		return p
	}
	return name
}

// Create makes a pod, and tells it in an event of its owner.
func (c *Control) Create(ctx context.Context, owner object.Object, p *corev1.Pod) (*corev1.Pod, error) {
	made, err := c.pods.Create(ctx, &corev1rpc.CreatePodRequest{Namespace: p.GetMetadata().GetNamespace(), Object: p})
	if err != nil {
		if ctx.Err() == nil && !apierrors.NamespaceGoes(err) {
			c.events.Event(owner, record.Warning, "FailedCreate", "Creating", "Error creating: "+apierrors.Text(err))
		}
		return nil, err
	}
	c.Wrote(owner.GetMetadata().GetUid(), made)
	c.events.Event(owner, record.Normal, "SuccessfulCreate", "Creating", "Created pod: "+made.GetMetadata().GetName())
	return made, nil
}

// Delete deletes a pod, and tells it in an event of its owner. One that is gone is as good as deleted; Conflict says
// that another one has its name, or that it changed while it was deleted.
func (c *Control) Delete(ctx context.Context, owner object.Object, p *corev1.Pod) error {
	m := p.GetMetadata()
	uid := m.GetUid()
	_, err := c.pods.Delete(ctx, &metav1.DeleteRequest{
		Namespace: m.GetNamespace(), Name: m.GetName(),
		Options: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{Uid: &uid}},
	})
	gone := apierrors.Is(err, apierrors.NotFound)
	if err != nil && !gone {
		if ctx.Err() == nil && !apierrors.Is(err, apierrors.Conflict) {
			c.events.Event(owner, record.Warning, "FailedDelete", "Deleting", "Error deleting: "+apierrors.Text(err))
		}
		return fmt.Errorf("delete pod %s/%s: %w", m.GetNamespace(), m.GetName(), err)
	}
	c.Gone(owner.GetMetadata().GetUid(), p)
	if !gone {
		c.events.Event(owner, record.Normal, "SuccessfulDelete", "Deleting", "Deleted pod: "+m.GetName())
	}
	return nil
}

// CreateAll makes n pods, in batches of 1, 2, 4 and so on. A failure ends it after its batch; those that follow would
// most likely fail alike. It returns how many were made.
func (c *Control) CreateAll(
	ctx context.Context, owner object.Object, n int, pod func(i int) *corev1.Pod,
) (made int, err error) {
	for batch := 1; made < n; batch *= 2 {
		var mu sync.Mutex
		var errs []error
		var g errgroup.Group
		g.SetLimit(parallel)
		size := min(batch, n-made)
		for i := range size {
			g.Go(func() error {
				if _, err := c.Create(ctx, owner, pod(made+i)); err != nil {
					mu.Lock()
					defer mu.Unlock()
					errs = append(errs, err)
				}
				return nil
			})
		}
		_ = g.Wait() // the errors are in errs
		if made += size - len(errs); len(errs) > 0 {
			return made, errs[0] // the others are most likely the same
		}
	}
	return made, nil
}

// DeleteAll deletes pods. It tries all of them, whatever fails.
func (c *Control) DeleteAll(ctx context.Context, owner object.Object, pods []*corev1.Pod) error {
	var mu sync.Mutex
	var first error
	var g errgroup.Group
	g.SetLimit(parallel)
	for _, p := range pods {
		g.Go(func() error {
			if err := c.Delete(ctx, owner, p); err != nil {
				mu.Lock()
				defer mu.Unlock()
				if first == nil {
					first = err
				}
			}
			return nil
		})
	}
	_ = g.Wait() // the first error is in first
	return first
}
