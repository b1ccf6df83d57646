package scheduler

import (
	"context"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/record"
	"monoplane.dev/object"
	"monoplane.dev/scheduler/framework"
	"monoplane.dev/scheduler/internal/queue"
)

// maxRepeats is how often a binding is repeated at once. A pod or node that changes more often than that is given up
// for now, so that it does not hold a binder.
const maxRepeats = 5

// bind carries out a decision and ends the try. The binding holds only for the pod and the node as they were judged;
// when the server has newer ones in which nothing has changed that the decision depends on, it is repeated with these.
//
//	Bind --> bound
//	 ^  |
//	 |  | Conflict          the decision does not hold
//	 |  v                   or too often
//	 read the pod and node ----------------------------> lost: forget the assumption, re-queue
func (s *Scheduler) bind(ctx context.Context, try *queue.Try, cycle *framework.CycleState, node string) {
	limited, cancel := context.WithTimeout(ctx, s.cfg.BindTimeout)
	defer cancel()
	pod := try.PodInfo
	status := s.profiles.of(try.Pod).Bind(limited, cycle, pod, node)
	for repeats := 0; !status.IsSuccess(); repeats++ {
		if ctx.Err() != nil {
			s.abandon(try, cycle, node) // we are stopping; the next start reads what came of it
			return
		}
		err := status.Err()
		live, became := s.outcome(ctx, try, err)
		switch became {
		case isBound:
			// The answer was lost, the binding was not. The watch confirms the pod, here or on another node.
			try.Done()
			return
		case isGone:
			s.profiles.of(try.Pod).Unreserve(cycle, try.PodInfo, node)
			s.state.Forget(try.PodInfo)
			try.Done()
			s.freed(try, cycle)
			return
		case isPending:
		}
		if repeats == maxRepeats || !apierrors.Is(err, apierrors.Conflict) || !s.holds(limited, cycle, pod, live) {
			s.lost(try, cycle, node, err)
			return
		}
		s.metrics.conflict("repeated")
		pod = pod.WithPod(live)
		status = s.profiles.of(try.Pod).Bind(limited, cycle, pod, node)
	}
	s.metrics.scheduled(try)
	try.Done()
}

// holds says whether a decision whose binding conflicted still holds: the pod or the node is newer than it was, but
// nothing that the decision depends on has changed. It notes the newer node.
func (s *Scheduler) holds(
	ctx context.Context, cycle *framework.CycleState, judged *framework.PodInfo, live *corev1.Pod,
) bool {
	if s.roleOf(live) != pending || relevant(judged.Pod, live) {
		return false
	}
	was := cycle.Picked()
	node, err := s.cfg.Client.Nodes.Get(ctx, &metav1.GetRequest{Name: was.GetMetadata().GetName()})
	if err != nil || node.GetMetadata().GetUid() != was.GetMetadata().GetUid() || nodeChange(was, node) != 0 {
		return false
	}
	if sameRevision(judged.Pod, live) && sameRevision(was, node) {
		return false // it conflicted with something else
	}
	cycle.Pick(node)
	return true
}

func sameRevision(a, b object.Object) bool {
	return a.GetMetadata().GetResourceVersion() == b.GetMetadata().GetResourceVersion()
}

// lost ends the try of a pod that is still to be bound.
func (s *Scheduler) lost(try *queue.Try, cycle *framework.CycleState, node string, err error) {
	s.metrics.attempt(try, hasFailed)
	if apierrors.Is(err, apierrors.Conflict) || apierrors.Is(err, apierrors.NotFound) {
		s.metrics.conflict("lost")
		s.cfg.Logger.Info("lost a race for a pod", "pod", try.Key.String(), "uid", try.UID, "node", node, "error", err)
	} else {
		s.cfg.Logger.Warn("cannot bind", "pod", try.Key.String(), "uid", try.UID, "node", node, "error", err)
		s.profiles.of(try.Pod).events.Event(try.Pod, record.Warning, "FailedScheduling", "Binding",
			"binding rejected: "+err.Error())
	}
	s.profiles.of(try.Pod).Unreserve(cycle, try.PodInfo, node)
	s.state.Forget(try.PodInfo)
	try.Retry()
	s.freed(try, cycle)
}

// freed says that a pod which was assumed is forgotten: pods that were refused because of it must hear that its room
// and volumes are free.
func (s *Scheduler) freed(try *queue.Try, cycle *framework.CycleState) {
	s.queue.Change(framework.Change{Event: framework.PodGone, OldPod: try.Pod})
	if plan := cycle.VolumePlan(); plan != nil {
		s.queue.Change(framework.Change{Event: framework.VolumesFreed, Freed: plan})
	}
}

type outcome int

const (
	isPending outcome = iota
	isBound
	isGone
)

// outcome asks the server what became of the pod after a binding failed. An unclear failure (a time-out, a lost
// connection) may hide a success, and forgetting a pod that is bound would give its room away twice. It returns the
// pod when it is pending and could be read.
func (s *Scheduler) outcome(ctx context.Context, try *queue.Try, err error) (*corev1.Pod, outcome) {
	wait := 100 * time.Millisecond
	for {
		pod, getErr := s.cfg.Client.Pods.Get(ctx, &metav1.GetRequest{Namespace: try.Key.Namespace, Name: try.Key.Name})
		switch {
		case apierrors.Is(getErr, apierrors.NotFound):
			return nil, isGone
		case getErr == nil && pod.GetMetadata().GetUid() != try.UID:
			return nil, isGone
		case getErr == nil && pod.GetSpec().GetNodeName() != "":
			return nil, isBound
		case getErr == nil:
			return pod, isPending
		}
		s.cfg.Logger.Warn("cannot read a pod after its binding failed", "pod", try.Key.String(), "uid", try.UID,
			"bind error", err, "error", getErr)
		t := time.NewTimer(wait)
		select {
		case <-t.C:
			wait = min(2*wait, 5*time.Second)
		case <-ctx.Done():
			t.Stop()
			return nil, isPending
		}
	}
}
