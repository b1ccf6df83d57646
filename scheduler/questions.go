package scheduler

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	schedulingv1 "monoplane.dev/api/scheduling/v1"
	schedulingv1rpc "monoplane.dev/api/scheduling/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/calls"
	"monoplane.dev/scheduler/framework"
	"monoplane.dev/scheduler/internal/queue"
)

const (
	// maxQuestions is how many questions wait at once. More are refused.
	maxQuestions = 16
	// questionTimeout is how long a question waits for its turn.
	questionTimeout = 5 * time.Second
	// questionShare: while pods wait to be tried, a question is followed by so many times the time that it took without
	// another, so that questions take a tenth of the time at most.
	questionShare = 9
	// frameSize is the most bytes of an answer that are sent at once.
	frameSize = 256 << 10
)

// question is about one pod.
type question struct {
	ctx  context.Context //nolint:containedctx // it ends when the caller has gone, and the question waits in a channel
	pod  *framework.PodInfo
	told chan told // of size 1, so that the decision loop never waits
}

// told is what the decision loop knows about a pod.
type told struct {
	explanation framework.Explanation
	err         error
	// gate is the refusal of a PreEnqueue plugin, picked the node on which the pod counts already.
	gate   *framework.Status
	picked string
	// place is nil for a pod that is not in the queue.
	place *queue.Place
	// nominated is the node on which room is kept for the pod, nil for none.
	nominated *framework.NodeInfo
}

// questions wait for the decision loop, which owns the snapshot that they are answered from.
//
//	server --call--> ask --waiting--> decision loop: between two decisions, or when it has nothing to do
//	       <-frames-- (status)  <--told--
//
// What it guarantees: at most maxQuestions wait; a question whose caller has gone is dropped; questions never take
// more than a tenth of the time while pods wait to be tried.
type questions struct {
	waiting chan *question
	// next is when the decision loop may answer again although pods wait. It belongs to the loop.
	next time.Time
}

func newQuestions() questions { return questions{waiting: make(chan *question, maxQuestions)} }

// serveQuestions answers the server's questions until ctx ends.
func (s *Scheduler) serveQuestions(ctx context.Context) error {
	var answers sync.WaitGroup
	defer answers.Wait()
	names := make([]string, len(s.cfg.Profiles))
	for i, p := range s.cfg.Profiles {
		names[i] = p.Name()
	}
	streams := s.cfg.Client.SchedulerStreams
	return calls.Serve(ctx, calls.Config[*schedulingv1rpc.SchedulerCall]{
		Listen: func(ctx context.Context) (func() (*schedulingv1rpc.SchedulerCall, error), error) {
			stream, err := streams.Listen(ctx, &schedulingv1rpc.ListenSchedulerRequest{SchedulerNames: names})
			if err != nil {
				return nil, err
			}
			return stream.Recv, nil
		},
		Answer: streams.Answer, Do: s.answer, Logger: s.cfg.Logger,
		Spawn: func(f func(context.Context)) { answers.Go(func() { f(ctx) }) },
	})
}

// answer serves one call.
func (s *Scheduler) answer(ctx context.Context, call *schedulingv1rpc.SchedulerCall, answer *calls.Answer) error {
	ask := call.GetExplain()
	if ask == nil {
		return apierrors.New(apierrors.MethodNotAllowed, "this scheduler does not know what is asked of it")
	}
	status, err := s.Explain(ctx, ask)
	if err != nil {
		return err
	}
	data, err := proto.Marshal(status)
	if err != nil {
		return err
	}
	for len(data) > 0 {
		n := min(len(data), frameSize)
		if err := answer.Send(data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// Explain says what the scheduler thinks of the nodes for a pod. It waits for the decision loop, which must run.
// Errors: TooManyRequests, Timeout (the loop had no time), NotFound (no profile for the pod), InternalError (a plugin
// failed).
func (s *Scheduler) Explain(
	ctx context.Context, ask *schedulingv1rpc.ExplainCall,
) (*schedulingv1.PlacementReviewStatus, error) {
	pod := ask.GetPod()
	if s.profiles.of(pod) == nil {
		return nil, apierrors.New(apierrors.NotFound, "this scheduler has no profile %q", pod.GetSpec().GetSchedulerName())
	}
	limited, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	q := &question{ctx: limited, pod: framework.NewPodInfo(pod), told: make(chan told, 1)}
	select {
	case s.questions.waiting <- q:
	default:
		return nil, apierrors.New(apierrors.TooManyRequests,
			"%d questions wait for the scheduler already, please try again later", maxQuestions).WithRetryAfter(1)
	}
	select {
	case t := <-q.told:
		if t.err != nil {
			return nil, apierrors.New(apierrors.InternalError, "the scheduler failed to judge the pod: %v", t.err)
		}
		return t.status(q.pod, ask), nil
	case <-limited.Done():
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, apierrors.New(apierrors.Timeout,
			"the scheduler was too busy with decisions to answer within %s, please try again later", questionTimeout)
	}
}

// answerBetween answers a question between two decisions, if it is a question's turn.
func (s *Scheduler) answerBetween(snapshot *framework.Snapshot) {
	if len(s.questions.waiting) == 0 || time.Now().Before(s.questions.next) {
		return
	}
	s.tell(<-s.questions.waiting, snapshot)
}

// tell answers a question from the decision loop.
func (s *Scheduler) tell(q *question, snapshot *framework.Snapshot) {
	if q.ctx.Err() != nil {
		return
	}
	began := time.Now()
	s.state.Update(snapshot)
	q.told <- s.know(q.pod, snapshot)
	now := time.Now()
	s.questions.next = now.Add(questionShare * now.Sub(began))
}

// know collects what the decision loop knows about a pod.
func (s *Scheduler) know(pod *framework.PodInfo, snapshot *framework.Snapshot) (t told) {
	if t.picked = s.state.NodeOf(pod.UID); t.picked != "" {
		return t
	}
	profile := s.profiles.of(pod.Pod)
	if t.gate = profile.PreEnqueue(pod); t.gate.Code() == framework.Error {
		return told{err: t.gate.Err()}
	}
	if place, ok := s.queue.Find(pod.Key, pod.UID); ok {
		t.place = &place
	}
	if n := snapshot.NominatedNode(pod.UID); n != nil {
		kept := *n // the decision loop goes on
		t.nominated = &kept
	}
	t.explanation, t.err = profile.Explain(pod, snapshot)
	var panicked *framework.PanicError
	if errors.As(t.err, &panicked) {
		s.cfg.Logger.Error("cannot explain", "pod", pod.Key.String(), "uid", pod.UID, "error", t.err, "stack",
			string(panicked.Stack))
	}
	return t
}
