package charge

import (
	"time"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/rules/quota"

	corev1 "monoplane.dev/api/core/v1"
)

// concerned says whether a write can take something of a quota: one that creates an object does, and of updates those
// of Services and claims, the resizing of a pod, and what moves a pod to other scopes.
func concerned(w registry.Write) bool {
	switch next := w.Next.(type) {
	case *corev1.Pod:
		live, _ := w.Live.(*corev1.Pod)
		return w.Live == nil || w.Subresource == "resize" ||
			w.Subresource == "" && quota.HasDeadline(live) != quota.HasDeadline(next)
	case *corev1.Service, *corev1.PersistentVolumeClaim:
		return w.Subresource == "" || w.Live == nil
	}
	return w.Live == nil && quota.Counted(w.Next.ObjectKind())
}

// demand is what a write takes of each of the quotas of its namespace.
type demand struct {
	quotas []*corev1.ResourceQuota
	hard   []quota.Usage
	// usage has what is taken of each quota, nothing for those that do not count the object.
	usage []quota.Usage
}

// nothing says whether nothing is taken.
func (d demand) nothing() bool {
	for _, usage := range d.usage {
		if len(usage) > 0 {
			return false
		}
	}
	return true
}

// demandOf measures a write. It refuses a pod that does not say what a quota counts.
func demandOf(w registry.Write, quotas []*corev1.ResourceQuota, now time.Time) (demand, error) {
	d := demand{
		quotas: quotas, hard: make([]quota.Usage, len(quotas)), usage: make([]quota.Usage, len(quotas)),
	}
	var after, before quota.Usage
	for i, q := range quotas {
		if !quota.Counts(q.GetSpec(), w.Next) {
			continue
		}
		hard := quota.UsageOf(q.GetSpec().GetHard())
		if missing := quota.Unsaid(hard, w.Next); missing != "" {
			return demand{}, apierrors.NewForbidden(w.Next.ObjectKind(), w.Next.GetMetadata().GetName(),
				"failed quota: %s: must specify %s", q.GetMetadata().GetName(), missing)
		}
		if after == nil {
			after = quota.Of(w.Next, now)
		}
		asked := after
		if w.Live != nil && quota.Counts(q.GetSpec(), w.Live) {
			if before == nil {
				before = quota.Of(w.Live, now)
			}
			asked = after.Beyond(before)
		}
		d.hard[i], d.usage[i] = hard, asked.Beyond(nil).Only(hard)
	}
	return d, nil
}

// same says whether two lists are of the same quotas, none of which changed what it is about.
func same(a, b []*corev1.ResourceQuota) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
