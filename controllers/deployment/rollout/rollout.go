// Package rollout decides how a Deployment goes from the pods that it has to those that it wants: which ReplicaSet is
// to be made, and which are to be scaled or removed next. It is pure: no clock, no client.
//
//	paused, or scaled by somebody ──► all sets are scaled in proportion; no set is made
//	RollingUpdate ──► the new set up as far as maxSurge goes, then the old ones down as far as maxUnavailable goes
//	Recreate ──► the old sets to 0; when their last pod is gone, the new one up
//	complete ──► old sets beyond revisionHistoryLimit are removed
//
// What it guarantees: by what it decides there are never more pods than replicas and maxSurge, and never fewer
// available ones than replicas without maxUnavailable, but for pods that were not available before. test/oracle
// compares it with Kubernetes' own controller.
package rollout

import (
	"cmp"
	"math"
	"slices"

	appsv1 "monoplane.dev/api/apps/v1"
	"monoplane.dev/rules/portion"
)

// The ways in which a Deployment replaces its pods.
const (
	rollingUpdate = "RollingUpdate"
	recreate      = "Recreate"
)

// Scaling is a change of the size of a set. It may be none: then only what the set notes of the Deployment changes.
type Scaling struct {
	Set *appsv1.ReplicaSet
	To  int32
}

// Plan is what is to be done next.
type Plan struct {
	// Make says that the new set is to be made, of that size.
	Make bool
	Size int32
	// Scale are the sets that are to be scaled.
	Scale []Scaling
	// Remove are old sets that are no longer kept.
	Remove []*appsv1.ReplicaSet
}

// Next returns what a Deployment does next, of whose sets fresh, which may be nil, is the new one. OldPodsRun says
// whether pods of the old ones have not ended; it is asked only when it matters.
func Next(d *appsv1.Deployment, fresh *appsv1.ReplicaSet, old []*appsv1.ReplicaSet, oldPodsRun func() bool) Plan {
	switch {
	case d.GetSpec().GetPaused():
		return Plan{Scale: proportional(d, fresh, old), Remove: surplus(d, old)}
	case wasScaled(d, append(slices.Clone(old), fresh)):
		return Plan{Scale: proportional(d, fresh, old)}
	case d.GetSpec().GetStrategy().GetType() == recreate:
		return recreated(d, fresh, old, oldPodsRun)
	default:
		return rolled(d, fresh, old)
	}
}

// rolled is the next step of a rolling update.
func rolled(d *appsv1.Deployment, fresh *appsv1.ReplicaSet, old []*appsv1.ReplicaSet) Plan {
	size := NewSize(d, fresh, old)
	if fresh == nil {
		return Plan{Make: true, Size: size}
	}
	if size != replicas(fresh) {
		return Plan{Scale: []Scaling{{fresh, size}}}
	}
	if down := scaleDown(d, fresh, active(old)); len(down) > 0 {
		return Plan{Scale: down}
	}
	return Plan{Remove: surplusWhenComplete(d, old)}
}

// recreated is the next step where all old pods go before the first new one comes.
func recreated(
	d *appsv1.Deployment, fresh *appsv1.ReplicaSet, old []*appsv1.ReplicaSet, oldPodsRun func() bool,
) Plan {
	var p Plan
	for _, rs := range active(old) {
		p.Scale = append(p.Scale, Scaling{rs, 0})
	}
	want := d.GetSpec().GetReplicas()
	switch {
	case len(p.Scale) > 0:
		return p
	case total(old, current) > 0 || oldPodsRun():
		return Plan{}
	case fresh == nil:
		return Plan{Make: true, Size: want}
	case replicas(fresh) != want:
		return Plan{Scale: []Scaling{{fresh, want}}}
	default:
		return Plan{Remove: surplusWhenComplete(d, old)}
	}
}

// NewSize returns how large the new set, which may be nil for one that is to be made, is to be beside the old ones. A
// pod of an old set counts until its deletion has begun, and not only until it is to be deleted, as in Kubernetes:
// there are never more pods than replicas and maxSurge, however slowly they are deleted.
func NewSize(d *appsv1.Deployment, fresh *appsv1.ReplicaSet, old []*appsv1.ReplicaSet) int32 {
	want, have := d.GetSpec().GetReplicas(), replicas(fresh)
	if have >= want || d.GetSpec().GetStrategy().GetType() == recreate {
		return want
	}
	room := want + configuredSurge(d) - total(old, standing) - have
	if room <= 0 {
		return have
	}
	return have + min(room, want-have)
}

// scaleDown returns which old sets can be made smaller: first by pods that are not available, which does no harm, then
// by as many as there are available ones beyond the least.
func scaleDown(d *appsv1.Deployment, fresh *appsv1.ReplicaSet, old []*appsv1.ReplicaSet) []Scaling {
	all := append(slices.Clone(old), fresh)
	least := d.GetSpec().GetReplicas() - Unavailable(d)
	most := total(all, replicas) - least - (replicas(fresh) - lasting(fresh))
	if most <= 0 {
		return nil
	}
	sets := slices.SortedFunc(slices.Values(old), older)
	sizes := map[*appsv1.ReplicaSet]int32{}
	shrink := func(rs *appsv1.ReplicaSet, by int32, left *int32) {
		by = min(by, *left)
		if by <= 0 {
			return
		}
		sizes[rs] -= by
		*left -= by
	}
	for _, rs := range sets {
		sizes[rs] = replicas(rs)
		shrink(rs, replicas(rs)-lasting(rs), &most)
	}
	beyond := total(all, lasting) - least
	for _, rs := range sets {
		shrink(rs, sizes[rs], &beyond)
	}
	var down []Scaling
	for _, rs := range sets {
		if sizes[rs] != replicas(rs) {
			down = append(down, Scaling{rs, sizes[rs]})
		}
	}
	return down
}

// wasScaled says whether somebody changed the replicas of the Deployment since its sets were scaled.
func wasScaled(d *appsv1.Deployment, sets []*appsv1.ReplicaSet) bool {
	return slices.ContainsFunc(active(sets), func(rs *appsv1.ReplicaSet) bool {
		n, ok := noted(rs, DesiredReplicas)
		return ok && n != d.GetSpec().GetReplicas()
	})
}

// proportional returns how the sets are scaled to a new number of replicas while a rollout is under way: each by its
// share, so that it is as far afterwards as before.
func proportional(d *appsv1.Deployment, fresh *appsv1.ReplicaSet, old []*appsv1.ReplicaSet) []Scaling {
	want := d.GetSpec().GetReplicas()
	if only := activeOrLatest(fresh, old); only != nil {
		if replicas(only) == want {
			return nil
		}
		return []Scaling{{only, want}}
	}
	if saturated(d, fresh) {
		var down []Scaling
		for _, rs := range active(old) {
			down = append(down, Scaling{rs, 0})
		}
		return down
	}
	if d.GetSpec().GetStrategy().GetType() != rollingUpdate {
		return nil
	}
	sets := active(append(slices.Clone(old), fresh))
	allowed := int32(0)
	if want > 0 {
		allowed = want + Surge(d)
	}
	add := allowed - total(sets, replicas)
	slices.SortFunc(sets, func(a, b *appsv1.ReplicaSet) int {
		age := older(a, b)
		if add > 0 {
			age = -age
		}
		return cmp.Or(cmp.Compare(replicas(b), replicas(a)), age)
	})
	scale, added := make([]Scaling, len(sets)), int32(0)
	for i, rs := range sets {
		part := share(d, rs, add, added)
		scale[i] = Scaling{rs, replicas(rs) + part}
		added += part
	}
	if len(scale) > 0 && add != 0 { // what rounding left goes to the largest
		scale[0].To = max(scale[0].To+add-added, 0)
	}
	return scale
}

// share returns by how much a set grows when all together grow by add, of which others have got added.
func share(d *appsv1.Deployment, rs *appsv1.ReplicaSet, add, added int32) int32 {
	if replicas(rs) == 0 || add == added {
		return 0
	}
	if part, left := fraction(d, rs), add-added; add > 0 {
		return min(part, left)
	} else {
		return max(part, left)
	}
}

func fraction(d *appsv1.Deployment, rs *appsv1.ReplicaSet) int32 {
	want := d.GetSpec().GetReplicas()
	if want == 0 {
		return -replicas(rs)
	}
	before, ok := noted(rs, MaxReplicas)
	if !ok || before == 0 { // somebody took the note away
		if before = d.GetStatus().GetReplicas(); before == 0 {
			return 0
		}
	}
	size := float64(replicas(rs)) * float64(want+Surge(d)) / float64(before)
	return int32(math.Floor(size+0.5)) - replicas(rs)
}

// activeOrLatest returns the only set with pods, or the newest one when none has; nil when several have.
func activeOrLatest(fresh *appsv1.ReplicaSet, old []*appsv1.ReplicaSet) *appsv1.ReplicaSet {
	switch all := active(append(slices.Clone(old), fresh)); {
	case len(all) == 1:
		return all[0]
	case len(all) > 1, fresh == nil && len(old) == 0:
		return nil
	case fresh != nil:
		return fresh
	default:
		return slices.MaxFunc(old, older)
	}
}

// saturated says whether the new set has all pods that are wanted, and they are available.
func saturated(d *appsv1.Deployment, fresh *appsv1.ReplicaSet) bool {
	want := d.GetSpec().GetReplicas()
	n, ok := noted(fresh, DesiredReplicas)
	return fresh != nil && ok && n == want && replicas(fresh) == want && available(fresh) == want
}

func surplusWhenComplete(d *appsv1.Deployment, old []*appsv1.ReplicaSet) []*appsv1.ReplicaSet {
	if !Complete(d, d.GetStatus()) {
		return nil
	}
	return surplus(d, old)
}

// surplus returns the old sets beyond those that are kept, the oldest revisions first. One with pods stays.
func surplus(d *appsv1.Deployment, old []*appsv1.ReplicaSet) []*appsv1.ReplicaSet {
	limit := d.GetSpec().RevisionHistoryLimit
	if limit == nil || *limit == math.MaxInt32 {
		return nil
	}
	var kept []*appsv1.ReplicaSet
	for _, rs := range old {
		if rs.GetMetadata().GetDeletionTimestamp() == nil {
			kept = append(kept, rs)
		}
	}
	diff := len(kept) - int(*limit)
	if diff <= 0 {
		return nil
	}
	slices.SortFunc(kept, func(a, b *appsv1.ReplicaSet) int {
		return cmp.Or(cmp.Compare(RevisionOf(a), RevisionOf(b)), older(a, b))
	})
	return slices.DeleteFunc(kept[:diff], func(rs *appsv1.ReplicaSet) bool {
		return replicas(rs) != 0 || current(rs) != 0 ||
			rs.GetMetadata().GetGeneration() > rs.GetStatus().GetObservedGeneration()
	})
}

// Surge returns how many pods there may be beyond replicas; Unavailable how many may be missing.
func Surge(d *appsv1.Deployment) int32 {
	surge, _ := steps(d)
	return surge
}

// Unavailable returns how many of the replicas may be missing.
func Unavailable(d *appsv1.Deployment) int32 {
	_, unavailable := steps(d)
	return min(unavailable, d.GetSpec().GetReplicas())
}

// steps reads the sizes of the steps of a rolling update. Where both round to 0, one pod may be missing, or the
// rollout would never move.
func steps(d *appsv1.Deployment) (surge, unavailable int32) {
	if d.GetSpec().GetStrategy().GetType() != rollingUpdate {
		return 0, 0
	}
	u, want := d.GetSpec().GetStrategy().GetRollingUpdate(), int(d.GetSpec().GetReplicas())
	missing, err := portion.Down(u.GetMaxUnavailable(), want)
	if surge = configuredSurge(d); err != nil || surge == 0 && missing == 0 {
		missing = 1
	}
	return surge, int32(missing) //nolint:gosec // the server bounds it
}

// configuredSurge is maxSurge of a rolling update.
func configuredSurge(d *appsv1.Deployment) int32 {
	surge, err := portion.Up(d.GetSpec().GetStrategy().GetRollingUpdate().GetMaxSurge(),
		int(d.GetSpec().GetReplicas()))
	if err != nil {
		return 0 // the server refuses it
	}
	return int32(surge) //nolint:gosec // the server bounds it
}

// active returns the sets that have pods, or are to have some.
func active(sets []*appsv1.ReplicaSet) []*appsv1.ReplicaSet {
	var some []*appsv1.ReplicaSet
	for _, rs := range sets {
		if replicas(rs) > 0 {
			some = append(some, rs)
		}
	}
	return some
}

func replicas(rs *appsv1.ReplicaSet) int32 { return rs.GetSpec().GetReplicas() }

func current(rs *appsv1.ReplicaSet) int32 { return rs.GetStatus().GetReplicas() }

func available(rs *appsv1.ReplicaSet) int32 { return rs.GetStatus().GetAvailableReplicas() }

// standing is how many pods a set has, or is to have.
func standing(rs *appsv1.ReplicaSet) int32 { return max(replicas(rs), current(rs)) }

// lasting is how many available pods a set has when it is as small as it is to be: its status may be of the time
// before it was scaled down.
func lasting(rs *appsv1.ReplicaSet) int32 { return min(available(rs), replicas(rs)) }

func total(sets []*appsv1.ReplicaSet, of func(*appsv1.ReplicaSet) int32) int32 {
	var n int32
	for _, rs := range sets {
		n += of(rs)
	}
	return n
}

// older puts the set first that was created first.
func older(a, b *appsv1.ReplicaSet) int {
	x, y := a.GetMetadata().GetCreationTimestamp(), b.GetMetadata().GetCreationTimestamp()
	return cmp.Or(cmp.Compare(x.GetSeconds(), y.GetSeconds()), cmp.Compare(x.GetNanos(), y.GetNanos()),
		cmp.Compare(a.GetMetadata().GetName(), b.GetMetadata().GetName()))
}
