package nodestreams_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	nodev1rpc "monoplane.dev/api/node/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/nodestreams"
	"monoplane.dev/client/inproc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a broker behind a connection.
type rig struct {
	t *testing.T
	b *nodestreams.Broker
	s *inproc.Server
}

func inRig(t *testing.T, cfg nodestreams.Config, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, b: nodestreams.New(cfg), s: inproc.NewServer(nil, nil)}
		nodev1rpc.RegisterNodeStreamsServer(r.s, r.b)
		defer r.s.Stop()
		f(r)
	})
}

// as returns a client with the identity of a user.
func (r *rig) as(name string, groups ...string) nodev1rpc.NodeStreamsClient {
	return nodev1rpc.NewNodeStreamsClient(r.s.Conn(inproc.WithContext(func(ctx context.Context) context.Context {
		return authn.WithUser(ctx, &authn.User{Name: name, Groups: groups})
	})))
}

func (r *rig) node(name string) nodev1rpc.NodeStreamsClient {
	return r.as(authn.NodePrefix+name, authn.NodesGroup)
}

// listen makes a node listen and returns its calls.
func (r *rig) listen(ctx context.Context, node string) func() (*nodev1rpc.Call, error) {
	r.t.Helper()
	stream, err := r.node(node).Listen(ctx, &nodev1rpc.ListenRequest{Node: node})
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := stream.Header(); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
	return stream.Recv
}

type result struct {
	data []byte
	err  error
}

// ask asks for a log and returns what came of it.
func (r *rig) ask(ctx context.Context, node string) <-chan result {
	out := make(chan result, 1)
	go func() {
		var b bytes.Buffer
		err := r.b.Logs(ctx, node, &nodev1rpc.LogCall{Namespace: "ns", Pod: "p", Uid: "u"}, func(data []byte) error {
			_, err := b.Write(data)
			return err
		})
		out <- result{b.Bytes(), err}
	}()
	return out
}

// spec: CTR-8
func TestLogs(t *testing.T) {
	inRig(t, nodestreams.Config{}, func(r *rig) {
		ctx, cancel := context.WithCancel(r.t.Context())
		defer cancel()
		next := r.listen(ctx, "a")
		got := r.ask(ctx, "a")
		call, err := next()
		if err != nil || call.GetLog().GetUid() != "u" || len(call.GetId()) < 20 {
			t.Fatalf("call: %v, %v", call, err)
		}
		answer, err := r.node("a").Answer(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []*nodev1rpc.Frame{{CallID: call.GetId()}, {Data: []byte("hello ")}, {Data: []byte("world")}} {
			if err := answer.Send(f); err != nil {
				t.Fatal(err)
			}
		}
		if err := answer.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if res := <-got; string(res.data) != "hello world" || res.err != nil {
			t.Errorf("got %q, %v", res.data, res.err)
		}
		if _, err := answer.Recv(); !errors.Is(err, io.EOF) && !apierrors.Is(err, apierrors.NotFound) {
			t.Errorf("the agent gets %v", err)
		}
		// A call is answered once.
		again, err := r.node("a").Answer(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_ = again.Send(&nodev1rpc.Frame{CallID: call.GetId()})
		if _, err := again.Recv(); !apierrors.Is(err, apierrors.NotFound) {
			t.Errorf("a second answer gets %v", err)
		}
	})
}

func TestAgentsError(t *testing.T) {
	inRig(t, nodestreams.Config{}, func(r *rig) {
		ctx, cancel := context.WithCancel(r.t.Context())
		defer cancel()
		next := r.listen(ctx, "a")
		for said, want := range map[string]apierrors.Reason{
			"NotFound": apierrors.NotFound, "BadRequest": apierrors.BadRequest, "Forbidden": apierrors.InternalError,
			"": apierrors.InternalError,
		} {
			got := r.ask(ctx, "a")
			call, err := next()
			if err != nil {
				t.Fatal(err)
			}
			answer, err := r.node("a").Answer(ctx)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Send(&nodev1rpc.Frame{CallID: call.GetId()})
			_ = answer.Send(&nodev1rpc.Frame{Error: "no", Reason: said})
			if res := <-got; !apierrors.Is(res.err, want) || res.err.Error() != "no" {
				t.Errorf("%q becomes %v", said, res.err)
			}
		}
	})
}

func TestUnanswered(t *testing.T) {
	inRig(t, nodestreams.Config{MaxCalls: 1}, func(r *rig) {
		ctx, cancel := context.WithCancel(r.t.Context())
		defer cancel()
		if res := <-r.ask(ctx, "a"); !apierrors.Is(res.err, apierrors.ServiceUnavailable) {
			t.Errorf("nobody listens: %v", res.err)
		}
		r.listen(ctx, "a")
		began := time.Now()
		first := r.ask(ctx, "a")
		synctest.Wait()
		if res := <-r.ask(ctx, "a"); !apierrors.Is(res.err, apierrors.TooManyRequests) {
			t.Errorf("one too many: %v", res.err)
		}
		if res := <-first; !apierrors.Is(res.err, apierrors.Timeout) || time.Since(began) != 10*time.Second {
			t.Errorf("no answer: %v after %s", res.err, time.Since(began))
		}
		if res := <-r.ask(ctx, "a"); !apierrors.Is(res.err, apierrors.Timeout) {
			t.Errorf("the place was not freed: %v", res.err)
		}
	})
}

// Who follows as many logs as he can keeps nobody else from asking.
func TestUsersShareCalls(t *testing.T) {
	inRig(t, nodestreams.Config{MaxCalls: 8}, func(r *rig) {
		ctx, cancel := context.WithCancel(r.t.Context())
		defer cancel()
		next := r.listen(ctx, "a")
		go func() {
			for {
				if _, err := next(); err != nil {
					return
				}
			}
		}()
		as := func(name string) context.Context { return authn.WithUser(ctx, &authn.User{Name: name}) }
		refused := func(name string) bool {
			got := r.ask(as(name), "a")
			synctest.Wait()
			select {
			case res := <-got:
				if !apierrors.Is(res.err, apierrors.TooManyRequests) {
					t.Fatal(res.err)
				}
				return true
			default:
				return false
			}
		}
		for i := range 12 {
			if got := refused("greedy"); got != (i >= 4) {
				t.Fatalf("call %d is refused: %t", i, got)
			}
		}
		for i := range 4 {
			if got := refused("greedy too"); got != (i >= 2) {
				t.Errorf("call %d of another is refused: %t", i, got)
			}
		}
		if refused("admin") {
			t.Error("a third is refused")
		}
	})
}

// A slow reader slows its own stream, and nothing is buffered beyond the connection's buffers.
func TestBackpressure(t *testing.T) {
	inRig(t, nodestreams.Config{}, func(r *rig) {
		ctx, cancel := context.WithCancel(r.t.Context())
		defer cancel()
		next := r.listen(ctx, "a")
		release := make(chan struct{})
		done := make(chan error, 1)
		go func() {
			done <- r.b.Logs(ctx, "a", &nodev1rpc.LogCall{}, func([]byte) error { <-release; return nil })
		}()
		call, err := next()
		if err != nil {
			t.Fatal(err)
		}
		answer, err := r.node("a").Answer(ctx)
		if err != nil {
			t.Fatal(err)
		}
		sent := 0
		finished := make(chan struct{})
		go func() {
			defer close(finished)
			_ = answer.Send(&nodev1rpc.Frame{CallID: call.GetId()})
			for range 1000 {
				if answer.Send(&nodev1rpc.Frame{Data: []byte("x")}) != nil {
					return
				}
				sent++
			}
			_ = answer.CloseSend()
		}()
		time.Sleep(time.Hour)
		synctest.Wait()
		if sent > 64 {
			t.Errorf("%d frames were taken from a stream that nobody reads", sent)
		}
		close(release)
		if err := <-done; err != nil {
			t.Error(err)
		}
		<-finished
		if sent != 1000 {
			t.Errorf("%d frames were sent", sent)
		}
	})
}

// When the caller goes away the agent is told, and the other way round.
func TestPartings(t *testing.T) {
	inRig(t, nodestreams.Config{}, func(r *rig) {
		ctx, cancel := context.WithCancel(r.t.Context())
		defer cancel()
		next := r.listen(ctx, "a")

		caller, leave := context.WithCancel(ctx)
		got := r.ask(caller, "a")
		call, err := next()
		if err != nil {
			t.Fatal(err)
		}
		answer, err := r.node("a").Answer(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Send(&nodev1rpc.Frame{CallID: call.GetId()})
		synctest.Wait()
		leave()
		if res := <-got; !errors.Is(res.err, context.Canceled) {
			t.Errorf("the caller gets %v", res.err)
		}
		if _, err := answer.Recv(); !apierrors.Is(err, apierrors.NotFound) {
			t.Errorf("the agent gets %v", err)
		}

		got = r.ask(ctx, "a")
		if call, err = next(); err != nil {
			t.Fatal(err)
		}
		agent, die := context.WithCancel(ctx)
		if answer, err = r.node("a").Answer(agent); err != nil {
			t.Fatal(err)
		}
		_ = answer.Send(&nodev1rpc.Frame{CallID: call.GetId()})
		synctest.Wait()
		die()
		if res := <-got; !apierrors.Is(res.err, apierrors.ServiceUnavailable) {
			t.Errorf("the caller gets %v", res.err)
		}
	})
}

// A newer Listen replaces an older one.
func TestReplaced(t *testing.T) {
	inRig(t, nodestreams.Config{}, func(r *rig) {
		ctx, cancel := context.WithCancel(r.t.Context())
		defer cancel()
		old := r.listen(ctx, "a")
		newer := r.listen(ctx, "a")
		if _, err := old(); !apierrors.Is(err, apierrors.Conflict) {
			t.Errorf("the older one gets %v", err)
		}
		got := r.ask(ctx, "a")
		if _, err := newer(); err != nil {
			t.Errorf("the newer one gets %v", err)
		}
		<-got
	})
}

func TestIdentity(t *testing.T) {
	inRig(t, nodestreams.Config{}, func(r *rig) {
		ctx, cancel := context.WithCancel(r.t.Context())
		defer cancel()
		for name, c := range map[string]nodev1rpc.NodeStreamsClient{
			"another node": r.node("b"), "an admin": r.as(authn.AdminName, authn.AdminsGroup),
			"a node without its group": r.as(authn.NodePrefix + "a"),
			"nobody":                   nodev1rpc.NewNodeStreamsClient(r.s.Conn()),
		} {
			stream, err := c.Listen(ctx, &nodev1rpc.ListenRequest{Node: "a"})
			if err == nil {
				_, err = stream.Recv()
			}
			if !apierrors.Is(err, apierrors.Forbidden) && !apierrors.Is(err, apierrors.Unauthorized) {
				t.Errorf("%s listens for a: %v", name, err)
			}
		}
		next := r.listen(ctx, "a")
		got := r.ask(ctx, "a")
		call, err := next()
		if err != nil {
			t.Fatal(err)
		}
		thief, err := r.node("b").Answer(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_ = thief.Send(&nodev1rpc.Frame{CallID: call.GetId()})
		if _, err := thief.Recv(); !apierrors.Is(err, apierrors.Forbidden) {
			t.Errorf("another node answers: %v", err)
		}
		if res := <-got; !apierrors.Is(res.err, apierrors.Timeout) {
			t.Errorf("the caller gets %v", res.err)
		}
	})
}

// The name is not enough: the machine must be the one that is registered under it.
//
// spec: NODE-7
func TestMachine(t *testing.T) {
	var mu sync.Mutex
	machines := map[string]string{"n": "key-1", "free": ""}
	owner := func(_ context.Context, node string) (string, bool, error) {
		mu.Lock()
		defer mu.Unlock()
		key, ok := machines[node]
		return key, ok, nil
	}
	inRig(t, nodestreams.Config{Machine: owner}, func(r *rig) {
		as := func(node, key string) nodev1rpc.NodeStreamsClient {
			return nodev1rpc.NewNodeStreamsClient(r.s.Conn(inproc.WithContext(func(ctx context.Context) context.Context {
				return authn.WithUser(ctx, &authn.User{Name: authn.NodePrefix + node, Groups: []string{authn.NodesGroup},
					UID: key})
			})))
		}
		listen := func(ctx context.Context, node, key string) (func() (*nodev1rpc.Call, error), error) {
			stream, err := as(node, key).Listen(ctx, &nodev1rpc.ListenRequest{Node: node})
			if err != nil {
				return nil, err
			}
			if _, err := stream.Header(); err != nil {
				return nil, err
			}
			return stream.Recv, nil
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		for _, tc := range []struct {
			node, key string
			want      apierrors.Reason
		}{
			{"n", "", apierrors.Forbidden}, {"n", "key-2", apierrors.Forbidden},
			{"none", "key-1", apierrors.ServiceUnavailable},
			{"free", "key-9", ""}, {"n", "key-1", ""},
		} {
			next, err := listen(ctx, tc.node, tc.key)
			if err == nil {
				// A stream that is refused says so with its first message; one that is not has none.
				synctest.Wait()
				refused := make(chan error, 1)
				go func() { _, err := next(); refused <- err }()
				synctest.Wait()
				select {
				case err = <-refused:
				default:
				}
			}
			if tc.want == "" && err != nil || tc.want != "" && !apierrors.Is(err, tc.want) {
				t.Errorf("%s of %q listens: %v, want %q", tc.key, tc.node, err, tc.want)
			}
		}

		next, err := listen(ctx, "n", "key-1")
		if err != nil {
			t.Fatal(err)
		}
		result := r.ask(ctx, "n")
		call, err := next()
		if err != nil {
			t.Fatal(err)
		}
		thief, err := as("n", "key-2").Answer(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_ = thief.Send(&nodev1rpc.Frame{CallID: call.GetId()})
		if _, err := thief.Recv(); !apierrors.Is(err, apierrors.Forbidden) {
			t.Errorf("another machine answered: %v", err)
		}
		answer, err := as("n", "key-1").Answer(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Send(&nodev1rpc.Frame{CallID: call.GetId()})
		_ = answer.Send(&nodev1rpc.Frame{Data: []byte("mine")})
		_ = answer.CloseSend()
		if got := <-result; got.err != nil || string(got.data) != "mine" {
			t.Errorf("%s, %v", got.data, got.err)
		}

		// While the Node is away its pods can still be looked at; once another machine has the name they cannot.
		mu.Lock()
		delete(machines, "n")
		mu.Unlock()
		gone, leave := context.WithCancel(ctx)
		result = r.ask(gone, "n")
		if _, err := next(); err != nil {
			t.Error(err)
		}
		leave()
		<-result
		mu.Lock()
		machines["n"] = "key-2"
		mu.Unlock()
		if got := <-r.ask(ctx, "n"); !apierrors.Is(got.err, apierrors.ServiceUnavailable) {
			t.Errorf("the former machine was asked: %v", got.err)
		}
	})
}

// A listener that does not read holds nobody up for longer than one that does not answer.
func TestListenerThatDoesNotRead(t *testing.T) {
	inRig(t, nodestreams.Config{AnswerTimeout: time.Minute}, func(r *rig) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		r.listen(ctx, "n")
		var asked []<-chan result
		for range 100 {
			asked = append(asked, r.ask(ctx, "n"))
		}
		began := time.Now()
		for _, c := range asked {
			if got := <-c; !apierrors.Is(got.err, apierrors.Timeout) {
				t.Errorf("%v", got.err)
			}
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("told after %v", took)
		}
	})
}

// Where another server may have the agent, nobody is told that it is away.
func TestAgentOfAnotherServer(t *testing.T) {
	inRig(t, nodestreams.Config{Shared: true}, func(r *rig) {
		res := <-r.ask(t.Context(), "n")
		if !apierrors.Is(res.err, apierrors.ServiceUnavailable) ||
			!strings.Contains(res.err.Error(), "not connected to this server: a node that is Ready is connected to another") {
			t.Error(res.err)
		}
	})
}
