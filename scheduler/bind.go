package scheduler

import (
	"context"
	"time"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/record"
	"monoplane.dev/scheduler/framework"
	"monoplane.dev/scheduler/internal/queue"
)

// bind carries out a decision and ends the try.
func (s *Scheduler) bind(ctx context.Context, try *queue.Try, cycle *framework.CycleState, node string) {
	bound, cancel := context.WithTimeout(ctx, s.cfg.BindTimeout)
	defer cancel()
	status := s.profile.Bind(bound, cycle, try.PodInfo, node)
	if status.IsSuccess() {
		s.metrics.attempt("scheduled")
		s.metrics.scheduled(try)
		try.Done()
		return
	}
	err := status.Err()
	if ctx.Err() != nil {
		s.abandon(try, cycle, node) // we are stopping; the next start reads what came of it
		return
	}
	switch s.outcome(ctx, try, err) {
	case isBound:
		// The answer was lost, the binding was not. The watch confirms the pod, here or on another node.
		try.Done()
		return
	case isGone:
		s.profile.Unreserve(cycle, try.PodInfo, node)
		s.state.Forget(try.PodInfo)
		try.Done()
		return
	case isPending:
	}
	s.metrics.attempt("error")
	if apierrors.Is(err, apierrors.Conflict) || apierrors.Is(err, apierrors.NotFound) {
		s.cfg.Logger.Info("lost a race for a pod", "pod", try.Key.String(), "uid", try.UID, "node", node, "error", err)
	} else {
		s.cfg.Logger.Warn("cannot bind", "pod", try.Key.String(), "uid", try.UID, "node", node, "error", err)
		s.events.Event(try.Pod, record.Warning, "FailedScheduling", "Binding", "binding rejected: "+err.Error())
	}
	s.profile.Unreserve(cycle, try.PodInfo, node)
	s.state.Forget(try.PodInfo)
	try.Retry()
	// The room is free again. Pods that were refused because of the assumption must hear of it.
	s.queue.Change(framework.Change{Event: framework.PodGone, OldPod: try.Pod})
}

type outcome int

const (
	isPending outcome = iota
	isBound
	isGone
)

// outcome asks the server what became of the pod after a binding failed. An unclear failure (a time-out, a lost
// connection) may hide a success, and forgetting a pod that is bound would give its room away twice.
func (s *Scheduler) outcome(ctx context.Context, try *queue.Try, err error) outcome {
	wait := 100 * time.Millisecond
	for {
		pod, getErr := s.cfg.Client.Pods.Get(ctx, &metav1.GetRequest{Namespace: try.Key.Namespace, Name: try.Key.Name})
		switch {
		case apierrors.Is(getErr, apierrors.NotFound):
			return isGone
		case getErr == nil && pod.GetMetadata().GetUid() != try.UID:
			return isGone
		case getErr == nil && pod.GetSpec().GetNodeName() != "":
			return isBound
		case getErr == nil:
			return isPending
		}
		s.cfg.Logger.Warn("cannot read a pod after its binding failed", "pod", try.Key.String(), "uid", try.UID, "bind error", err, "error", getErr)
		t := time.NewTimer(wait)
		select {
		case <-t.C:
			wait = min(2*wait, 5*time.Second)
		case <-ctx.Done():
			t.Stop()
			return isPending
		}
	}
}
