package schedulerstreams_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	nodev1rpc "monoplane.dev/api/node/v1/rpc"
	schedulingv1 "monoplane.dev/api/scheduling/v1"
	schedulingv1rpc "monoplane.dev/api/scheduling/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/schedulerstreams"
	"monoplane.dev/client/inproc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a broker behind a connection.
type rig struct {
	t *testing.T
	b *schedulerstreams.Broker
	s *inproc.Server
}

func inRig(t *testing.T, f func(r *rig, ctx context.Context)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, b: schedulerstreams.New(schedulerstreams.Config{}), s: inproc.NewServer(nil, nil)}
		schedulingv1rpc.RegisterSchedulerStreamsServer(r.s, r.b)
		defer r.s.Stop()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		f(r, ctx)
	})
}

func (r *rig) as(name string) schedulingv1rpc.SchedulerStreamsClient {
	user := inproc.WithContext(func(ctx context.Context) context.Context {
		return authn.WithUser(ctx, &authn.User{Name: name})
	})
	return schedulingv1rpc.NewSchedulerStreamsClient(r.s.Conn(user))
}

// listen makes a scheduler listen and returns its calls.
func (r *rig) listen(ctx context.Context, names ...string) func() (*schedulingv1rpc.SchedulerCall, error) {
	r.t.Helper()
	stream, err := r.as(authn.SchedulerName).Listen(ctx, &schedulingv1rpc.ListenSchedulerRequest{SchedulerNames: names})
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := stream.Header(); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
	return stream.Recv
}

// answer answers a call with a message, in pieces.
func (r *rig) answer(ctx context.Context, call *schedulingv1rpc.SchedulerCall, message string) {
	r.t.Helper()
	stream, err := r.as(authn.SchedulerName).Answer(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	data, err := proto.Marshal(&schedulingv1.PlacementReviewStatus{Message: message})
	if err != nil {
		r.t.Fatal(err)
	}
	_ = stream.Send(&nodev1rpc.Frame{CallID: call.GetId()})
	for _, b := range data {
		_ = stream.Send(&nodev1rpc.Frame{Data: []byte{b}})
	}
	_ = stream.CloseSend()
}

type result struct {
	status *schedulingv1.PlacementReviewStatus
	err    error
}

func (r *rig) ask(ctx context.Context, scheduler, pod string) <-chan result {
	out := make(chan result, 1)
	go func() {
		st, err := r.b.Explain(ctx, &schedulingv1rpc.ExplainCall{
			Pod: &corev1.Pod{Spec: &corev1.PodSpec{SchedulerName: scheduler, Hostname: pod}}})
		out <- result{st, err}
	}()
	return out
}

// Questions go to the scheduler that the pod chose, several at once.
func TestExplain(t *testing.T) {
	inRig(t, func(r *rig, ctx context.Context) {
		if res := <-r.ask(ctx, "a", "p"); !apierrors.Is(res.err, apierrors.ServiceUnavailable) ||
			!strings.Contains(res.err.Error(), "no scheduler is connected") {
			t.Errorf("nobody listens: %v", res.err)
		}
		one, two := r.listen(ctx, "a", "b"), r.listen(ctx, "c")
		if res := <-r.ask(ctx, "d", "p"); res.status != nil || res.err != nil {
			t.Errorf("another name: %v", res)
		}
		for who, next := range map[string]func() (*schedulingv1rpc.SchedulerCall, error){"a": one, "b": one, "c": two} {
			var asked []<-chan result
			for i := range 8 {
				asked = append(asked, r.ask(ctx, who, fmt.Sprint(who, i)))
			}
			var answers sync.WaitGroup
			for range asked {
				call, err := next()
				if err != nil {
					t.Fatal(err)
				}
				answers.Go(func() { r.answer(ctx, call, "about "+call.GetExplain().GetPod().GetSpec().GetHostname()) })
			}
			for i, a := range asked {
				if res := <-a; res.err != nil || res.status.GetMessage() != fmt.Sprint("about ", who, i) {
					t.Errorf("%s %d: %v", who, i, res)
				}
			}
			answers.Wait()
		}
	})
}

// While the only scheduler comes and goes nobody is told that another one is there.
func TestExplainWhileConnecting(t *testing.T) {
	r := &rig{t: t, b: schedulerstreams.New(schedulerstreams.Config{}), s: inproc.NewServer(nil, nil)}
	schedulingv1rpc.RegisterSchedulerStreamsServer(r.s, r.b)
	defer r.s.Stop()
	asking, done := context.WithCancel(t.Context())
	var askers sync.WaitGroup
	for range 2 {
		askers.Go(func() {
			for asking.Err() == nil {
				res := <-r.ask(asking, "a", "p")
				if !apierrors.Is(res.err, apierrors.ServiceUnavailable) && asking.Err() == nil {
					t.Errorf("%v, %v", res.status, res.err)
					return
				}
			}
		})
	}
	for range 1000 {
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := r.as(authn.SchedulerName).Listen(ctx,
			&schedulingv1rpc.ListenSchedulerRequest{SchedulerNames: []string{"a"}})
		if err == nil {
			_, err = stream.Header()
		}
		if err != nil {
			t.Error(err)
		}
		cancel()
	}
	done()
	askers.Wait()
}

// A scheduler that dies before or during its answer is noticed at once.
func TestSchedulerDies(t *testing.T) {
	inRig(t, func(r *rig, ctx context.Context) {
		life, die := context.WithCancel(ctx)
		next := r.listen(life, "a")
		began := time.Now()
		got := r.ask(ctx, "a", "p")
		if _, err := next(); err != nil {
			t.Fatal(err)
		}
		die()
		if res := <-got; !apierrors.Is(res.err, apierrors.ServiceUnavailable) || time.Since(began) != 0 {
			t.Errorf("it died before: %v after %s", res.err, time.Since(began))
		}

		next = r.listen(ctx, "a")
		got = r.ask(ctx, "a", "p")
		call, err := next()
		if err != nil {
			t.Fatal(err)
		}
		life, die = context.WithCancel(ctx)
		stream, err := r.as(authn.SchedulerName).Answer(life)
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.Send(&nodev1rpc.Frame{CallID: call.GetId()})
		_ = stream.Send(&nodev1rpc.Frame{Data: []byte{10}})
		synctest.Wait()
		die()
		if res := <-got; !apierrors.Is(res.err, apierrors.ServiceUnavailable) || time.Since(began) != 0 {
			t.Errorf("it died meanwhile: %v after %s", res.err, time.Since(began))
		}

		got = r.ask(ctx, "a", "p")
		if call, err = next(); err != nil {
			t.Fatal(err)
		}
		if stream, err = r.as(authn.SchedulerName).Answer(ctx); err != nil {
			t.Fatal(err)
		}
		_ = stream.Send(&nodev1rpc.Frame{CallID: call.GetId()})
		if res := <-got; !apierrors.Is(res.err, apierrors.Timeout) || time.Since(began) != 30*time.Second {
			t.Errorf("it says nothing: %v after %s", res.err, time.Since(began))
		}
	})
}

// A newer scheduler of one of the names replaces the older one; its other names are then nobody's.
func TestReplaced(t *testing.T) {
	inRig(t, func(r *rig, ctx context.Context) {
		old := r.listen(ctx, "a", "b")
		next := r.listen(ctx, "b")
		if _, err := old(); !apierrors.Is(err, apierrors.Conflict) {
			t.Errorf("the older one gets %v", err)
		}
		synctest.Wait()
		if res := <-r.ask(ctx, "a", "p"); res.status != nil || res.err != nil {
			t.Errorf("a name of the older one: %v", res)
		}
		got := r.ask(ctx, "b", "p")
		call, err := next()
		if err != nil {
			t.Fatal(err)
		}
		r.answer(ctx, call, "yes")
		if res := <-got; res.status.GetMessage() != "yes" {
			t.Errorf("the newer one: %v", res)
		}
	})
}

// Only the scheduler's identity listens and answers.
func TestIdentity(t *testing.T) {
	inRig(t, func(r *rig, ctx context.Context) {
		for _, who := range []string{authn.AdminName, authn.NodePrefix + "n", authn.ControllerPrefix + "podgc", ""} {
			stream, err := r.as(who).Listen(ctx, &schedulingv1rpc.ListenSchedulerRequest{SchedulerNames: []string{"a"}})
			if err == nil {
				_, err = stream.Recv()
			}
			if !apierrors.Is(err, apierrors.Forbidden) {
				t.Errorf("%q listens: %v", who, err)
			}
		}
		for _, names := range [][]string{nil, {""}, make([]string, 101)} {
			stream, err := r.as(authn.SchedulerName).Listen(ctx, &schedulingv1rpc.ListenSchedulerRequest{SchedulerNames: names})
			if err == nil {
				_, err = stream.Recv()
			}
			if !apierrors.Is(err, apierrors.BadRequest) && !apierrors.Is(err, apierrors.Forbidden) {
				t.Errorf("%d names: %v", len(names), err)
			}
		}
		next := r.listen(ctx, "a")
		got := r.ask(ctx, "a", "p")
		call, err := next()
		if err != nil {
			t.Fatal(err)
		}
		thief, err := r.as(authn.AdminName).Answer(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_ = thief.Send(&nodev1rpc.Frame{CallID: call.GetId()})
		if _, err := thief.Recv(); !apierrors.Is(err, apierrors.Forbidden) {
			t.Errorf("another identity answers: %v", err)
		}
		r.answer(ctx, call, "mine")
		if res := <-got; res.status.GetMessage() != "mine" {
			t.Errorf("the caller gets %v", res)
		}
	})
}
