package scheduler

import (
	"context"

	"monoplane.dev/scheduler/framework"
	"monoplane.dev/scheduler/internal/queue"
)

// prepare waits for Permit plugins and runs PreBind. Both may take minutes, so that no binder is held meanwhile. When
// it returns false the try has ended.
func (s *Scheduler) prepare(ctx context.Context, try *queue.Try, cycle *framework.CycleState, node string) bool {
	status := cycle.Waiting().Wait(ctx)
	s.waiting.Delete(try.UID)
	if status.IsSuccess() {
		cycle.SetNews(s.news)
		status = s.profiles.of(try.Pod).PreBind(ctx, cycle, try.PodInfo, node)
	}
	switch {
	case status.IsSuccess():
		return true
	case ctx.Err() != nil:
		s.abandon(try, cycle, node)
		return false
	case status.IsRejected():
		s.rejected(try, status)
		s.abandon(try, cycle, node) // it heard of no change meanwhile, one of which may have helped
	default:
		s.profiles.of(try.Pod).Unreserve(cycle, try.PodInfo, node)
		s.state.Forget(try.PodInfo)
		s.failed(try, "cannot prepare the binding", status.Err())
	}
	s.freed(try, cycle)
	return false
}

const podIsGone = "the pod is gone"

// refuseWaiting ends the wait of a pod that is gone, or about to go.
func (s *Scheduler) refuseWaiting(uid, why string) {
	if w, ok := s.waiting.Load(uid); ok {
		w.(*framework.Waiting).Refuse(framework.NewStatus(framework.Unschedulable, "", why))
	}
}
