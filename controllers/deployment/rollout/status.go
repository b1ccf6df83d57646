package rollout

import (
	"fmt"
	"math"
	"slices"
	"time"

	appsv1 "monoplane.dev/api/apps/v1"
	"monoplane.dev/codec/value"
)

// The conditions of a Deployment and their reasons.
const (
	progressing    = "Progressing"
	availableKind  = "Available"
	replicaFailure = "ReplicaFailure"

	created      = "NewReplicaSetCreated"
	found        = "FoundNewReplicaSet"
	updated      = "ReplicaSetUpdated"
	done         = "NewReplicaSetAvailable"
	timedOut     = "ProgressDeadlineExceeded"
	paused       = "DeploymentPaused"
	resumed      = "DeploymentResumed"
	enough       = "MinimumReplicasAvailable"
	tooFew       = "MinimumReplicasUnavailable"
	CreateFailed = "ReplicaSetCreateError" // a new set could not be made
)

// Seen is what a Deployment's status tells of.
type Seen struct {
	// New is the new set, nil for none; Old are the others.
	New *appsv1.ReplicaSet
	Old []*appsv1.ReplicaSet
	// Made says that New was made just now.
	Made bool
	// Failure is why the new set could not be made; empty when it could.
	Failure string
	// Still says that the Deployment is paused, scaled or deleted: its progress is not judged.
	Still bool
	Now   time.Time
}

// Status returns the status of a Deployment. What it shares with the present one is not changed.
func Status(d *appsv1.Deployment, s Seen) *appsv1.DeploymentStatus {
	sets := slices.Clone(s.Old)
	if s.New != nil {
		sets = append(sets, s.New)
	}
	ready := func(rs *appsv1.ReplicaSet) int32 { return rs.GetStatus().GetReadyReplicas() }
	was := d.GetStatus()
	next := &appsv1.DeploymentStatus{
		ObservedGeneration: d.GetMetadata().GetGeneration(),
		Replicas:           total(sets, current), UpdatedReplicas: current(s.New), ReadyReplicas: total(sets, ready),
		AvailableReplicas:   total(sets, available),
		UnavailableReplicas: max(0, total(sets, replicas)-total(sets, available)),
		Conditions:          slices.Clone(was.GetConditions()),
	}
	if was != nil {
		next.CollisionCount = was.CollisionCount
	}
	for _, rs := range sets {
		if st := rs.GetStatus(); st != nil && st.TerminatingReplicas != nil {
			n := next.GetTerminatingReplicas() + st.GetTerminatingReplicas()
			next.TerminatingReplicas = &n
		}
	}
	c := conditions{&next.Conditions, s.Now}
	if HasDeadline(d) {
		c.pause(d)
		c.appear(s)
	}
	if next.AvailableReplicas >= d.GetSpec().GetReplicas()-Unavailable(d) {
		c.set(availableKind, "True", enough, "Deployment has minimum availability.")
	} else {
		c.set(availableKind, "False", tooFew, "Deployment does not have minimum availability.")
	}
	if s.Still {
		return next
	}
	if !HasDeadline(d) {
		c.remove(progressing)
	} else if s.Failure == "" {
		c.progress(d, was, next, s)
	}
	c.failures(s, sets)
	return next
}

// Complete says whether a rollout is complete, by a status.
func Complete(d *appsv1.Deployment, s *appsv1.DeploymentStatus) bool {
	want := d.GetSpec().GetReplicas()
	return s.GetUpdatedReplicas() == want && s.GetReplicas() == want && s.GetAvailableReplicas() == want &&
		s.GetObservedGeneration() >= d.GetMetadata().GetGeneration()
}

// HasDeadline says whether a Deployment wants to be told when it makes no progress.
func HasDeadline(d *appsv1.Deployment) bool {
	limit := d.GetSpec().ProgressDeadlineSeconds
	return limit != nil && *limit != math.MaxInt32
}

// Deadline returns after which time a Deployment with a status is to be looked at for lack of progress; 0 for none.
func Deadline(d *appsv1.Deployment, s *appsv1.DeploymentStatus, now time.Time) time.Duration {
	c := condition(s.GetConditions(), progressing)
	if !HasDeadline(d) || d.GetSpec().GetPaused() || c == nil || c.GetReason() == done || c.GetReason() == timedOut ||
		Complete(d, s) {
		return 0
	}
	return max(deadline(d, c).Sub(now), 0) + time.Second // times are kept in seconds
}

func deadline(d *appsv1.Deployment, c *appsv1.DeploymentCondition) time.Time {
	limit := time.Duration(d.GetSpec().GetProgressDeadlineSeconds()) * time.Second
	return time.Unix(c.GetLastUpdateTime().GetSeconds(), int64(c.GetLastUpdateTime().GetNanos())).Add(limit)
}

// conditions changes a list of its own; the elements are replaced, never changed.
type conditions struct {
	list *[]*appsv1.DeploymentCondition
	now  time.Time
}

func condition(list []*appsv1.DeploymentCondition, kind string) *appsv1.DeploymentCondition {
	for _, c := range list {
		if c.GetType() == kind {
			return c
		}
	}
	return nil
}

func (c conditions) get(kind string) *appsv1.DeploymentCondition { return condition(*c.list, kind) }

func (c conditions) remove(kind string) {
	*c.list = slices.DeleteFunc(*c.list, func(x *appsv1.DeploymentCondition) bool { return x.GetType() == kind })
}

// set writes a condition, unless there is one with that status and reason. Its time is the present one's when the
// status stays.
func (c conditions) set(kind, status, reason, message string) {
	if was := c.get(kind); was.GetStatus() == status && was.GetReason() == reason {
		return
	}
	c.renew(kind, status, reason, message)
}

// renew is set also where the status and the reason stay.
func (c conditions) renew(kind, status, reason, message string) {
	was, now := c.get(kind), value.Time(c.now)
	next := &appsv1.DeploymentCondition{
		Type: kind, Status: status, Reason: reason, Message: message, LastUpdateTime: now, LastTransitionTime: now,
	}
	if was.GetStatus() == status {
		next.LastTransitionTime = was.GetLastTransitionTime()
	}
	c.remove(kind)
	*c.list = append(*c.list, next)
}

// pause notes that a Deployment is paused, or no longer: the time in between is no lack of progress.
func (c conditions) pause(d *appsv1.Deployment) {
	was := c.get(progressing).GetReason()
	switch is := d.GetSpec().GetPaused(); {
	case was == timedOut, d.GetMetadata().GetDeletionTimestamp() != nil:
	case is && was != paused:
		c.set(progressing, "Unknown", paused, "Deployment is paused")
	case !is && was == paused:
		c.set(progressing, "Unknown", resumed, "Deployment is resumed")
	}
}

// appear notes that there is a new set, or why there is none.
func (c conditions) appear(s Seen) {
	switch {
	case s.Failure != "":
		c.set(progressing, "False", CreateFailed, s.Failure)
	case s.Made:
		c.set(progressing, "True", created, fmt.Sprintf("Created new replica set %q", s.New.GetMetadata().GetName()))
	case s.New != nil && c.get(progressing) == nil:
		c.set(progressing, "True", found, fmt.Sprintf("Found new replica set %q", s.New.GetMetadata().GetName()))
	}
}

// progress notes that the rollout is complete, goes on, or has not gone on for too long.
func (c conditions) progress(d *appsv1.Deployment, was, next *appsv1.DeploymentStatus, s Seen) {
	now := c.get(progressing)
	if next.Replicas == next.UpdatedReplicas && now.GetReason() == done {
		return // it has been complete, and there is no new rollout
	}
	who := fmt.Sprintf("Deployment %q", d.GetMetadata().GetName())
	if s.New != nil {
		who = fmt.Sprintf("ReplicaSet %q", s.New.GetMetadata().GetName())
	}
	switch {
	case Complete(d, next):
		c.set(progressing, "True", done, who+" has successfully progressed.")
	case advanced(was, next):
		c.renew(progressing, "True", updated, who+" is progressing.")
	case now == nil || now.GetReason() == done:
	case now.GetReason() == timedOut || deadline(d, now).Before(c.now):
		c.set(progressing, "False", timedOut, who+" has timed out progressing.")
	}
}

// advanced says whether there is progress between two statuses: more new pods, fewer old ones, more that are ready or
// available.
func advanced(was, now *appsv1.DeploymentStatus) bool {
	old := func(s *appsv1.DeploymentStatus) int32 { return s.GetReplicas() - s.GetUpdatedReplicas() }
	return now.GetUpdatedReplicas() > was.GetUpdatedReplicas() || old(now) < old(was) ||
		now.GetReadyReplicas() > was.GetReadyReplicas() || now.GetAvailableReplicas() > was.GetAvailableReplicas()
}

// failures takes over from the sets that pods cannot be made: the new one's failure counts more.
func (c conditions) failures(s Seen, sets []*appsv1.ReplicaSet) {
	for _, rs := range append([]*appsv1.ReplicaSet{s.New}, sets...) {
		for _, f := range rs.GetStatus().GetConditions() {
			if f.GetType() == replicaFailure {
				c.set(replicaFailure, f.GetStatus(), f.GetReason(), f.GetMessage())
				return
			}
		}
	}
	c.remove(replicaFailure)
}
