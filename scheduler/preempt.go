package scheduler

import (
	"context"
	"fmt"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/podstatus"
	"monoplane.dev/client/record"
	"monoplane.dev/codec/value"
	"monoplane.dev/rules/disruption"
	"monoplane.dev/scheduler/framework"
	"monoplane.dev/scheduler/internal/queue"
)

// nominate carries out what preemption decided: from now on the room is kept for the pod, and the victims count as on
// their way out. They are deleted off the decision loop; the pod waits in the queue until the last of them is gone.
// Nothing happens for a pod that is gone.
func (s *Scheduler) nominate(ctx context.Context, try *queue.Try, n *framework.Nomination) {
	pod := try.PodInfo
	if n.Node == "" {
		s.giveBack(pod)
		return
	}
	s.state.Nominate(pod, n.Node)
	if try.Gone() { // who took note of that did so too early to give the room back
		s.state.Nominate(pod, "")
		return
	}
	s.metrics.preemptions.Inc()
	s.metrics.victims.Observe(float64(len(n.Victims)))
	for _, p := range s.state.NominatedTo(n.Node) {
		if p.Priority < pod.Priority { // the room is not for it any more: it may preempt elsewhere
			s.unnominate(p)
			s.queue.Activate(p.Key, p.UID)
		}
	}
	s.reporter.nominated(pod, n.Node)
	for _, v := range n.Victims {
		s.state.Doom(v.UID, true)
		s.refuseWaiting(v.UID, "preempted")
	}
	s.preemptions.Go(func() {
		if err := s.evict(ctx, pod, n); err != nil && ctx.Err() == nil {
			s.cfg.Logger.Warn("cannot make room for a pod", "pod", pod.Key.String(), "uid", pod.UID, "node", n.Node, "error",
				err)
			s.giveUp(pod, n)
		}
	})
}

// unnominate takes away the nomination of a pod; nothing happens to one that has none.
func (s *Scheduler) unnominate(pod *framework.PodInfo) {
	if s.state.Nominated(pod.UID) == "" && pod.Pod.GetStatus().GetNominatedNodeName() == "" {
		return
	}
	s.state.Nominate(pod, "")
	s.reporter.nominated(pod, "")
}

// giveBack is unnominate for room that is kept for nobody else instead. Pods that were kept out must hear of it.
func (s *Scheduler) giveBack(pod *framework.PodInfo) {
	kept := s.state.Nominated(pod.UID) != ""
	s.unnominate(pod)
	if kept {
		s.queue.Change(framework.Change{Event: framework.PodGone, OldPod: pod.Pod})
	}
}

// giveUp ends a preemption that failed. Victims that were deleted are gone; the others stay.
func (s *Scheduler) giveUp(pod *framework.PodInfo, n *framework.Nomination) {
	for _, v := range n.Victims {
		s.state.Doom(v.UID, false)
	}
	if s.state.Nominated(pod.UID) == n.Node {
		s.giveBack(pod)
	}
	s.queue.Activate(pod.Key, pod.UID)
}

// evictTimeout bounds the deletion of one victim.
const evictTimeout = 10 * time.Second

// evict deletes the victims one after the other, the least important first.
func (s *Scheduler) evict(ctx context.Context, pod *framework.PodInfo, n *framework.Nomination) error {
	for i := len(n.Victims) - 1; i >= 0; i-- {
		if err := s.evictOne(ctx, pod, n.Node, n.Victims[i]); err != nil {
			return fmt.Errorf("evict %s: %w", n.Victims[i].Key, err)
		}
	}
	return nil
}

// evictOne marks a victim as one of preemption and deletes it gracefully (spec: PREEMPT-2). One that is on its way out
// is left alone.
func (s *Scheduler) evictOne(
	ctx context.Context, pod *framework.PodInfo, node string, victim *framework.PodInfo,
) error {
	if victim.Pod.GetMetadata().GetDeletionTimestamp() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, evictTimeout)
	defer cancel()
	_, err := podstatus.Write(ctx, s.cfg.Client.Pods, fieldManager, victim.Pod,
		func(now *corev1.Pod, st *corev1.PodStatus) bool {
			podstatus.SetCondition(st, disrupted(pod, now))
			return true
		})
	if err != nil {
		return s.unlessGone(ctx, victim, "mark it", err)
	}
	_, err = s.cfg.Client.Pods.Delete(ctx, &metav1.DeleteRequest{
		Namespace: victim.Key.Namespace, Name: victim.Key.Name,
		Options: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{Uid: &victim.UID}},
	})
	if err != nil {
		return s.unlessGone(ctx, victim, "delete it", err)
	}
	s.profiles.of(pod.Pod).events.Event(victim.Pod, record.Normal, "Preempted", "Preempting",
		fmt.Sprintf("Preempted by pod %s on node %s", pod.UID, node))
	return nil
}

// unlessGone returns the error, or nil if the reason for it is that the victim is not there any more.
func (s *Scheduler) unlessGone(ctx context.Context, victim *framework.PodInfo, what string, err error) error {
	if apierrors.Is(err, apierrors.NotFound) {
		return nil
	}
	if apierrors.Is(err, apierrors.Conflict) { // another pod has its name, or somebody writes it all the time
		live, getErr := s.cfg.Client.Pods.Get(ctx, &metav1.GetRequest{Namespace: victim.Key.Namespace,
			Name: victim.Key.Name})
		if apierrors.Is(getErr, apierrors.NotFound) || getErr == nil && live.GetMetadata().GetUid() != victim.UID {
			return nil
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// disrupted is the condition of a victim.
func disrupted(pod *framework.PodInfo, victim *corev1.Pod) *corev1.PodCondition {
	return &corev1.PodCondition{
		Type: disruption.Target, Status: "True", Reason: disruption.ByPreemption,
		Message:            pod.Pod.GetSpec().GetSchedulerName() + ": preempting to accommodate a higher priority pod",
		LastTransitionTime: value.Time(time.Now()), ObservedGeneration: victim.GetMetadata().GetGeneration(),
	}
}
