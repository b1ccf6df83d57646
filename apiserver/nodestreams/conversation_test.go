package nodestreams_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	nodev1rpc "monoplane.dev/api/node/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/nodestreams"
	"monoplane.dev/client/calls"
)

// opened is a conversation, or why there is none.
type opened struct {
	define.Conversation

	err error
}

// talk has node be asked for an exec, and returns what the caller gets and what the agent answers on.
func (r *rig) talk(ctx context.Context, node string, next func() (*nodev1rpc.Call, error)) (
	define.Conversation, nodev1rpc.NodeStreams_AnswerClient,
) {
	r.t.Helper()
	caller := make(chan opened, 1)
	go func() {
		c, err := r.b.Exec(ctx, node, &nodev1rpc.ExecCall{Uid: "u"})
		caller <- opened{c, err}
	}()
	call, err := next()
	if err != nil || call.GetExec().GetUid() != "u" {
		r.t.Fatalf("call: %v, %v", call, err)
	}
	answer, err := r.node(node).Answer(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := answer.Send(&nodev1rpc.Frame{CallID: call.GetId()}); err != nil {
		r.t.Fatal(err)
	}
	got := <-caller
	if got.err != nil {
		r.t.Fatal(got.err)
	}
	return got.Conversation, answer
}

// Both sides hear each other in order; the caller's input is held back once a window of it was not taken, and a
// component that claims to have taken more gains no room by it.
//
// spec: CTR-9
func TestConversation(t *testing.T) {
	inRig(t, nodestreams.Config{}, func(r *rig) {
		ctx, cancel := context.WithCancel(r.t.Context())
		defer cancel()
		talk, answer := r.talk(ctx, "a", r.listen(ctx, "a"))
		defer talk.Close()
		if err := answer.Send(&nodev1rpc.Frame{}); err != nil {
			t.Fatal(err)
		}
		if out, err := talk.Recv(); err != nil || out.GetData() != nil || out.GetStatus() != nil {
			t.Errorf("that the agent has accepted is %v, %v", out, err)
		}
		sent := 0
		go func() {
			for i := range 100 {
				if talk.Send(&corev1.StreamInput{Data: fmt.Append(nil, i)}) != nil {
					return
				}
				sent++
			}
		}()
		got := 0
		take := func(n int) {
			for range n {
				f, err := answer.Recv()
				if want := fmt.Sprint(got); err != nil || string(f.GetInput().GetData()) != want {
					t.Fatalf("%v, %v, want %s", f, err, want)
				}
				got++
			}
		}
		take(calls.Window)
		time.Sleep(time.Hour)
		synctest.Wait()
		if sent != calls.Window {
			t.Fatalf("%d pieces were sent, of which none was taken", sent)
		}
		// The output goes on meanwhile.
		if err := answer.Send(&nodev1rpc.Frame{Output: &corev1.StreamOutput{Data: []byte("out")}}); err != nil {
			t.Fatal(err)
		}
		heard := make(chan *corev1.StreamOutput, 10)
		var end error
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				out, err := talk.Recv()
				if err != nil {
					end = err
					return
				}
				heard <- out
			}
		}()
		if out := <-heard; string(out.GetData()) != "out" {
			t.Errorf("heard %v", out)
		}
		if err := answer.Send(&nodev1rpc.Frame{Taken: 4}); err != nil {
			t.Fatal(err)
		}
		take(4)
		synctest.Wait()
		if sent != calls.Window+4 {
			t.Errorf("%d pieces were sent after 4 were taken", sent)
		}
		if err := answer.Send(&nodev1rpc.Frame{Taken: 1 << 30}); err != nil {
			t.Fatal(err)
		}
		take(calls.Window)
		synctest.Wait()
		if sent != got {
			t.Errorf("%d pieces were sent, %d have arrived", sent, got)
		}
		if err := answer.CloseSend(); err != nil {
			t.Fatal(err)
		}
		<-ended
		if !errors.Is(end, io.EOF) {
			t.Errorf("the conversation ends with %v", end)
		}
		if err := talk.Send(&corev1.StreamInput{}); err == nil {
			t.Error("something was sent after the end")
		}
	})
}

// Who goes is missed at once by the other side.
//
// spec: CTR-9
func TestConversationPartings(t *testing.T) {
	for name, c := range map[string]struct {
		part func(talk define.Conversation, answer nodev1rpc.NodeStreams_AnswerClient, leave func())
		want apierrors.Reason // What the caller gets; empty when it has left itself.
	}{
		"the caller closes": {part: func(talk define.Conversation, _ nodev1rpc.NodeStreams_AnswerClient, _ func()) {
			talk.Close()
		}},
		"the agent says why": {part: func(_ define.Conversation, answer nodev1rpc.NodeStreams_AnswerClient, _ func()) {
			_ = answer.Send(&nodev1rpc.Frame{Error: "no such container", Reason: "NotFound"})
		}, want: apierrors.NotFound},
		"the agent invents a reason": {part: func(_ define.Conversation, answer nodev1rpc.NodeStreams_AnswerClient, _ func()) {
			_ = answer.Send(&nodev1rpc.Frame{Error: "you may not", Reason: "Forbidden"})
		}, want: apierrors.InternalError},
		"the agent breaks down": {part: func(_ define.Conversation, _ nodev1rpc.NodeStreams_AnswerClient, leave func()) {
			leave()
		}, want: apierrors.ServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, nodestreams.Config{MaxCalls: 1}, func(r *rig) {
				agent, leave := context.WithCancel(r.t.Context())
				defer leave()
				ctx, cancel := context.WithCancel(r.t.Context())
				defer cancel()
				next := r.listen(ctx, "a")
				caller := make(chan opened, 1)
				go func() {
					c, err := r.b.Attach(ctx, "a", &nodev1rpc.AttachCall{})
					caller <- opened{c, err}
				}()
				call, err := next()
				if err != nil {
					t.Fatal(err)
				}
				answer, err := r.node("a").Answer(agent)
				if err != nil {
					t.Fatal(err)
				}
				_ = answer.Send(&nodev1rpc.Frame{CallID: call.GetId()})
				talk := <-caller
				if talk.err != nil {
					t.Fatal(talk.err)
				}
				// It counts as one of the calls that a node serves.
				_, err = r.b.PortForward(ctx, "a", &nodev1rpc.PortForwardCall{})
				if !apierrors.Is(err, apierrors.TooManyRequests) {
					t.Errorf("a second call: %v", err)
				}
				c.part(talk.Conversation, answer, leave)
				if c.want != "" {
					if _, err := talk.Recv(); !apierrors.Is(err, c.want) {
						t.Errorf("the caller gets %v, want %s", err, c.want)
					}
					talk.Close()
				}
				if _, err := answer.Recv(); err == nil {
					t.Error("the agent hears something")
				}
				synctest.Wait()
				go func() { _, _ = next() }() // The place is free again: what refuses is the time.
				if _, err := r.b.PortForward(ctx, "a", &nodev1rpc.PortForwardCall{}); !apierrors.Is(err, apierrors.Timeout) {
					t.Errorf("a call after it: %v", err)
				}
			})
		})
	}
}

// A conversation that does not begin fails in time, or with who asks, or with who is asked.
//
// spec: CTR-9
func TestConversationUnanswered(t *testing.T) {
	inRig(t, nodestreams.Config{AnswerTimeout: 7 * time.Second}, func(r *rig) {
		if _, err := r.b.Exec(r.t.Context(), "a", &nodev1rpc.ExecCall{}); !apierrors.Is(err, apierrors.ServiceUnavailable) {
			t.Errorf("nobody listens: %v", err)
		}
		listening, leave := context.WithCancel(r.t.Context())
		next := r.listen(listening, "a")
		begin := time.Now()
		go func() { _, _ = next() }()
		if _, err := r.b.Exec(r.t.Context(), "a", &nodev1rpc.ExecCall{}); !apierrors.Is(err, apierrors.Timeout) {
			t.Errorf("nobody answers: %v", err)
		}
		if took := time.Since(begin); took != 7*time.Second {
			t.Errorf("it took %s", took)
		}
		ctx, cancel := context.WithCancel(r.t.Context())
		time.AfterFunc(time.Second, cancel)
		go func() { _, _ = next() }()
		if _, err := r.b.Exec(ctx, "a", &nodev1rpc.ExecCall{}); !errors.Is(err, context.Canceled) {
			t.Errorf("who asks has gone: %v", err)
		}
		time.AfterFunc(time.Second, leave)
		go func() { _, _ = next() }()
		if _, err := r.b.Exec(r.t.Context(), "a", &nodev1rpc.ExecCall{}); !apierrors.Is(err, apierrors.ServiceUnavailable) {
			t.Errorf("who is asked has gone: %v", err)
		}
	})
}
