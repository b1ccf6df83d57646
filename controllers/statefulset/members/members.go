// Package members decides what is to be done next for the pods of a StatefulSet and their claims, and says how many
// pods there are. It is pure: no clock, no client. test/oracle compares it with Kubernetes' own.
//
// A set is looked at in four parts, each of which is reached when nothing in those before it holds it up:
//
//	wanted members, from the first on ──► what has ended goes, what is missing is made, what differs is repaired
//	claims of those that are one too many ──► get the owners with which they go
//	members that are one too many, from the last on ──► go
//	members of an older revision, from the last on ──► go, as many as the rolling update allows
//
// In order (OrderedReady) a member that is not available yet, or is going, holds up all that follows; in parallel
// nothing does but an error.
//
// What it guarantees: a member is made only when no pod of its name was seen. That none is there is for the server to
// say, which makes no second pod of a name; so there is one of an identity at most, however old what was seen is.
package members

import (
	"cmp"
	"slices"
	"time"

	appsv1 "monoplane.dev/api/apps/v1"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/rules/availability"
	"monoplane.dev/rules/phase"
	"monoplane.dev/rules/portion"
)

// Burst is the most pods that are made at a time.
const Burst = 500

// The words of a StatefulSet's spec.
const (
	rollingUpdate = "RollingUpdate"
	onDelete      = "OnDelete"
	parallel      = "Parallel"
)

// Template is a revision: its name, and the template that it holds.
type Template struct {
	Name     string
	Template *corev1.PodTemplateSpec
}

// Seen is what a decision is made by.
type Seen struct {
	Set *appsv1.StatefulSet
	// Current and Update are the revisions that all pods had, and are to have.
	Current, Update Template
	// Collisions is how often the name of a revision was taken by another one.
	Collisions int32
	// Pods are those of the set; each has a number.
	Pods []*corev1.Pod
	// Claim returns a claim of the set's namespace; nil for none.
	Claim func(name string) *corev1.PersistentVolumeClaim
	// Pod returns a pod of a template with the set as its owner.
	Pod func(*corev1.PodTemplateSpec) *corev1.Pod
	Now time.Time
}

// Verb is what is done with a pod.
type Verb int

// The verbs.
const (
	// Keep does nothing: it is about claims alone.
	Keep Verb = iota
	// Create makes the pod.
	Create
	// Update writes the pod.
	Update
	// Delete begins to delete the pod, gracefully.
	Delete
)

// Step is what is to be done for one member, in the order of the fields.
type Step struct {
	// Make are claims that are to be made.
	Make []*corev1.PersistentVolumeClaim
	// Going are names of claims that are needed and being deleted: nothing more can be done until they are gone.
	Going []string
	// Own are claims that are to have other owners.
	Own []Owning
	// Verb is done with Pod, which is the member's.
	Verb Verb
	Pod  *corev1.Pod
}

// Owning is a change of the owners of a claim.
type Owning struct {
	Claim  *corev1.PersistentVolumeClaim
	Owners []*metav1.OwnerReference
	// Conflict says that somebody else manages the claim, so that it does not go as the policy says.
	Conflict bool
}

// Plan is what is to be done next.
type Plan struct {
	// Parts come one after the other, each when the one before it has succeeded. The steps of one may be done at once if
	// Parallel, and are otherwise done one after the other.
	Parts    [][]Step
	Parallel bool
	// Status is how the set is to be described, whatever becomes of the parts.
	Status *appsv1.StatefulSetStatus
	// Updated is how many pods of the current revision the last part deletes. They do not count as such any more.
	Updated int32
}

// Next returns what is to be done next.
func Next(s Seen) Plan {
	d := decision{Seen: s, ordered: s.Set.GetSpec().GetPodManagementPolicy() != parallel}
	d.sort()
	plan := Plan{Parallel: !d.ordered, Status: status(s)}
	if s.Set.GetMetadata().GetDeletionTimestamp() == nil {
		for _, part := range []func() ([]Step, bool){d.keep, d.settle, d.shrink, d.update} {
			steps, on := part()
			if len(steps) > 0 {
				plan.Parts = append(plan.Parts, steps)
			}
			if !on {
				break
			}
		}
	}
	plan.Updated = d.updated
	return plan
}

// slot is a place for a member, with the pod that has it; nil when there is none.
type slot struct {
	ordinal int
	pod     *corev1.Pod
}

// decision is the making of one.
type decision struct {
	Seen
	ordered bool
	// replicas are the members that are wanted and there, from the first on, and condemned those that are one too many,
	// from the last on.
	replicas, condemned []slot
	updated             int32
}

func (d *decision) sort() {
	for _, p := range d.Pods {
		n, ok := Ordinal(d.Set.GetMetadata().GetName(), p)
		switch {
		case !ok:
		case within(d.Set, n):
			d.replicas = append(d.replicas, slot{n, p})
		default:
			d.condemned = append(d.condemned, slot{n, p})
		}
	}
	slices.SortFunc(d.replicas, func(a, b slot) int { return cmp.Compare(a.ordinal, b.ordinal) })
	slices.SortFunc(d.condemned, func(a, b slot) int { return cmp.Compare(b.ordinal, a.ordinal) })
}

func going(p *corev1.Pod) bool { return p.GetMetadata().GetDeletionTimestamp() != nil }

func ready(p *corev1.Pod) bool {
	return p.GetStatus().GetPhase() == phase.Running && availability.Ready(p)
}

func (d *decision) available(p *corev1.Pod) bool {
	return availability.Available(p, d.Set.GetSpec().GetMinReadySeconds(), d.Now)
}

// unavailable says whether a pod is missing, not available or going.
func (d *decision) unavailable(p *corev1.Pod) bool { return p == nil || !d.available(p) || going(p) }

// keep looks at the members that are wanted. There may be very many that are not there.
func (d *decision) keep() (steps []Step, on bool) {
	there := d.replicas
	made := 0
	for n := range int(d.Set.GetSpec().GetReplicas()) {
		s := slot{ordinal: start(d.Set) + n}
		if len(there) > 0 && there[0].ordinal == s.ordinal {
			s, there = there[0], there[1:]
		} else if made++; made > Burst {
			return steps, false
		}
		step, on := d.replica(s)
		if step.Verb != Keep || len(step.Make)+len(step.Own)+len(step.Going) > 0 {
			steps = append(steps, step)
		}
		if d.ordered && !on {
			return steps, false
		}
	}
	return steps, true
}

// replica returns what is to be done for a member that is wanted, and whether those after it may be looked at.
func (d *decision) replica(s slot) (step Step, on bool) {
	p := s.pod
	switch {
	case p == nil:
		return d.create(s.ordinal), false
	case phase.Terminal(p):
		if going(p) {
			return Step{}, false // a new one is made when it is gone
		}
		return Step{Verb: Delete, Pod: p}, false
	}
	if p.GetStatus().GetPhase() == phase.Pending {
		step = d.claims(s.ordinal)
		step.Own = d.own(s)
	}
	step.Pod = p
	if d.ordered && (going(p) || !ready(p) || !d.available(p)) {
		return step, false
	}
	if next := repaired(d.Set, p, s.ordinal); next != nil {
		if !stored(d.Set, p, s.ordinal) {
			step = d.claims(s.ordinal)
		}
		step.Verb, step.Pod = Update, next
	}
	step.Own = d.own(s)
	return step, true
}

// create returns how a member is made. It waits until no claim of it goes with an earlier pod of its name.
func (d *decision) create(ordinal int) Step {
	t := d.Update
	if d.old(ordinal) {
		t = d.Current
	}
	p := member(d.Set, d.Pod(t.Template), t.Name, ordinal)
	if _, withPod := policy(d.Set); withPod {
		for _, c := range newClaims(d.Set, ordinal) {
			if there := d.Claim(c.GetMetadata().GetName()); there != nil && stale(p, there) {
				return Step{}
			}
		}
	}
	step := d.claims(ordinal)
	step.Verb, step.Pod, step.Own = Create, p, d.own(slot{ordinal, p})
	return step
}

// old says whether a member that is made now is to be of the current revision, and not of the newest.
func (d *decision) old(ordinal int) bool {
	u := d.Set.GetSpec().GetUpdateStrategy()
	if steps := u.GetRollingUpdate(); steps != nil {
		return ordinal < start(d.Set)+int(steps.GetPartition())
	}
	return u.GetType() == rollingUpdate && ordinal < start(d.Set)+int(d.Set.GetStatus().GetCurrentReplicas())
}

// claims returns which claims of a member are to be made, and which are going.
func (d *decision) claims(ordinal int) (step Step) {
	for _, c := range newClaims(d.Set, ordinal) {
		switch there := d.Claim(c.GetMetadata().GetName()); {
		case there == nil:
			step.Make = append(step.Make, c)
		case there.GetMetadata().GetDeletionTimestamp() != nil:
			step.Going = append(step.Going, c.GetMetadata().GetName())
		}
	}
	return step
}

// own returns which claims of a member are to have other owners.
func (d *decision) own(s slot) (all []Owning) {
	templates := d.Set.GetSpec().GetVolumeClaimTemplates()
	for i, t := range templates {
		if claimed(templates[:i], t.GetMetadata().GetName()) {
			continue
		}
		c := d.Claim(ClaimName(t, d.Set.GetMetadata().GetName(), s.ordinal))
		if c == nil || settled(d.Set, s.pod, s.ordinal, c) {
			continue
		}
		all = append(all, Owning{
			Claim: c, Owners: owners(d.Set, s.pod, s.ordinal, c), Conflict: conflicting(d.Set, s.pod, c),
		})
	}
	return all
}

// settle gives the claims of members that are one too many the owners with which they go.
func (d *decision) settle() (steps []Step, on bool) {
	for _, s := range d.condemned {
		if own := d.own(s); len(own) > 0 {
			steps = append(steps, Step{Own: own, Pod: s.pod})
		}
	}
	return steps, true
}

// shrink begins to delete members that are one too many. In order, the last goes first, and none while one is going or
// the one whose turn it is is not available, unless all before it are.
func (d *decision) shrink() (steps []Step, on bool) {
	var firstUnhealthy *corev1.Pod
	for _, s := range d.condemned {
		if d.unavailable(s.pod) {
			firstUnhealthy = s.pod
		}
	}
	for _, s := range d.condemned {
		p := s.pod
		healthy := ready(p) && d.available(p)
		if d.ordered && (going(p) || !healthy && p != firstUnhealthy) {
			return steps, false
		}
		if !going(p) {
			steps = append(steps, Step{Verb: Delete, Pod: p})
		}
		if d.ordered {
			return steps, false
		}
	}
	return steps, true
}

// update begins to delete members of an older revision.
func (d *decision) update() (steps []Step, on bool) {
	u := d.Set.GetSpec().GetUpdateStrategy()
	if u.GetType() == onDelete {
		return nil, true
	}
	lowest := start(d.Set) + int(u.GetRollingUpdate().GetPartition())
	if most := u.GetRollingUpdate().GetMaxUnavailable(); most != nil {
		return d.updateMany(lowest, most), true
	}
	next := start(d.Set) + int(d.Set.GetSpec().GetReplicas()) - 1
	for _, s := range slices.Backward(d.replicas) {
		if s.ordinal != next || s.ordinal < lowest {
			break // the one between is missing, which is not available
		}
		next--
		if d.outdated(s.pod) {
			return d.replace(nil, s.pod), true
		}
		if d.unavailable(s.pod) {
			break
		}
	}
	return nil, true
}

// updateMany is update when several may be unavailable: as many as are not yet, for whatever reason.
func (d *decision) updateMany(lowest int, most *metav1.IntOrString) (steps []Step) {
	replicas := int(d.Set.GetSpec().GetReplicas())
	left, err := portion.Down(most, replicas)
	if err != nil {
		return nil // it is not valid, and the server lets nobody write it
	}
	left = max(left, 1) - replicas
	for _, s := range d.replicas {
		if !d.unavailable(s.pod) {
			left++
		}
	}
	for _, s := range slices.Backward(d.replicas) {
		if left <= 0 || s.ordinal < lowest {
			break
		}
		if d.outdated(s.pod) {
			steps = d.replace(steps, s.pod)
			left--
		}
	}
	return steps
}

// outdated says whether a pod is of another revision than the newest, and stays.
func (d *decision) outdated(p *corev1.Pod) bool { return Revision(p) != d.Update.Name && !going(p) }

// replace adds to some steps that a pod is deleted, which one that has ended is already.
func (d *decision) replace(steps []Step, p *corev1.Pod) []Step {
	if Revision(p) == d.Current.Name {
		d.updated++
	}
	if phase.Terminal(p) {
		return steps
	}
	return append(steps, Step{Verb: Delete, Pod: p})
}
