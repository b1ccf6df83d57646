package daemonset

import (
	"cmp"
	"context"

	"k8s.io/apimachinery/pkg/labels"

	appsv1 "monoplane.dev/api/apps/v1"
	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/controllers/daemonset/plan"
	"monoplane.dev/controllers/internal/history"
)

// revisions are those of a DaemonSet.
type revisions struct {
	// newest is that of the template, and the last of all.
	newest *appsv1.ControllerRevision
	all    []*appsv1.ControllerRevision
	// collisions is how often a name was taken by another one's.
	collisions int32
}

// hashOf returns the hash by which pods name a revision. One that somebody else made without is named as a whole.
func hashOf(r *appsv1.ControllerRevision) string {
	m := r.GetMetadata()
	return cmp.Or(m.GetLabels()[plan.HashLabel], m.GetName())
}

// revise returns the revisions of a DaemonSet, after that of the newest template was made if need be.
func (c *Controller) revise(
	ctx context.Context, d *appsv1.DaemonSet, selector labels.Selector,
) (r revisions, err error) {
	if r.all, err = c.history.List(ctx, d, selector, c.live(d)); err != nil {
		return r, err
	}
	data, err := history.TemplatePatch(d.GetSpec().GetTemplate())
	if err != nil {
		return r, err
	}
	r.newest, r.all, r.collisions, err = c.history.Newest(ctx, d, r.all, history.State{
		Data: data, Labels: d.GetSpec().GetTemplate().GetMetadata().GetLabels(),
		Annotations: d.GetMetadata().GetAnnotations(), HashLabel: plan.HashLabel,
		Collisions: d.GetStatus().GetCollisionCount(),
	})
	return r, err
}

// truncate removes the oldest revisions that are not in use, until revisionHistoryLimit are left besides the newest.
// Those in use are among these, and stay even if they are more.
func (c *Controller) truncate(ctx context.Context, d *appsv1.DaemonSet, pods []*corev1.Pod, r revisions) error {
	used := map[string]bool{}
	for _, p := range pods {
		used[p.GetMetadata().GetLabels()[plan.HashLabel]] = true
	}
	live, idle := map[string]bool{r.newest.GetMetadata().GetName(): true}, int(d.GetSpec().GetRevisionHistoryLimit())
	for _, old := range r.all[:len(r.all)-1] {
		if used[hashOf(old)] {
			live[old.GetMetadata().GetName()] = true
			idle--
		}
	}
	return c.history.Truncate(ctx, d, r.all, live, max(0, idle))
}
