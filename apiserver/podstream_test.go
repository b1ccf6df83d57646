package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver"
	"monoplane.dev/apiserver/kinds/define"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	nodev1rpc "monoplane.dev/api/node/v1/rpc"
)

// talkers stands for the agents: they accept what they are asked for, and answer each piece of input with itself, its
// end with a status.
type talkers struct {
	define.StreamSource

	mu     sync.Mutex
	asked  []string
	closed int
	refuse error
}

func (s *talkers) open(ctx context.Context, format string, args ...any) (define.Conversation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, fmt.Sprintf(format, args...))
	if s.refuse != nil {
		return nil, s.refuse
	}
	said := make(chan *corev1.StreamOutput, 1)
	said <- &corev1.StreamOutput{}
	return &parrot{ctx: ctx, source: s, said: said}, nil
}

func (s *talkers) Exec(ctx context.Context, node string, call *nodev1rpc.ExecCall) (define.Conversation, error) {
	o := call.GetOptions()
	return s.open(ctx, "exec %s %s %s %q in %v out %v err %v tty %v", node, call.GetUid(), o.GetContainer(),
		o.GetCommand(), o.GetStdin(), o.GetStdout(), o.GetStderr(), o.GetTty())
}

func (s *talkers) Attach(ctx context.Context, node string, call *nodev1rpc.AttachCall) (define.Conversation, error) {
	o := call.GetOptions()
	return s.open(ctx, "attach %s %s %s in %v out %v err %v tty %v", node, call.GetUid(), o.GetContainer(), o.GetStdin(),
		o.GetStdout(), o.GetStderr(), o.GetTty())
}

func (s *talkers) PortForward(
	ctx context.Context, node string, call *nodev1rpc.PortForwardCall,
) (define.Conversation, error) {
	return s.open(ctx, "forward %s %s %d", node, call.GetUid(), call.GetPort())
}

// last is what was asked last, and how many conversations were closed.
func (s *talkers) last() (asked string, closed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.asked) > 0 {
		asked = s.asked[len(s.asked)-1]
	}
	return asked, s.closed
}

type parrot struct {
	ctx    context.Context //nolint:containedctx // A conversation ends with it.
	source *talkers
	said   chan *corev1.StreamOutput
}

func (p *parrot) Send(in *corev1.StreamInput) error {
	out := &corev1.StreamOutput{Data: in.GetData()}
	if s := in.GetSize(); s != nil {
		out.Errors = fmt.Append(nil, s.GetWidth(), "x", s.GetHeight())
	}
	if in.GetEnd() {
		out.Status = &metav1.Status{Status: "Success"}
	}
	select {
	case p.said <- out:
		return nil
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}

func (p *parrot) Recv() (*corev1.StreamOutput, error) {
	select {
	case out := <-p.said:
		if out.GetStatus() != nil {
			close(p.said)
		}
		if out == nil {
			return nil, io.EOF
		}
		return out, nil
	case <-p.ctx.Done():
		return nil, p.ctx.Err()
	}
}

func (p *parrot) Close() {
	p.source.mu.Lock()
	defer p.source.mu.Unlock()
	p.source.closed++
}

// What is asked of an agent is what the caller asks for, with what is left out filled in; both sides hear each other
// in order, up to the end of the input, which the end of the caller's side is as well.
//
// spec: CTR-9
func TestPodStreams(t *testing.T) {
	s := &talkers{}
	c := start(t, func(cfg *apiserver.Config) { cfg.Streams = s })
	c.register("n1")
	uid := c.boundPod("p", "n1").GetMetadata().GetUid()
	pods := c.admin().Pods
	for _, tc := range []struct {
		req  *corev1rpc.ExecPodRequest
		want string
	}{
		{&corev1rpc.ExecPodRequest{}, "in false out true err true tty false"},
		{&corev1rpc.ExecPodRequest{Tty: true}, "in false out true err false tty true"},
		{&corev1rpc.ExecPodRequest{Stdin: true}, "in true out false err false tty false"},
		{&corev1rpc.ExecPodRequest{Stderr: true, Tty: true, Stdin: true}, "in true out false err false tty true"},
	} {
		for _, end := range []string{"a message", "the caller's side"} {
			stream := must(pods.Exec(ctx(t)))(t)
			tc.req.Namespace, tc.req.Name, tc.req.Command = "default", "p", []string{"a", "b c"}
			send := func(in *corev1.StreamInput) {
				t.Helper()
				if err := stream.Send(&corev1rpc.ExecPodRequest{Input: in}); err != nil {
					t.Fatal(err)
				}
			}
			if err := stream.Send(tc.req); err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Header(); err != nil { // The agent has accepted.
				t.Fatal(err)
			}
			send(&corev1.StreamInput{Size: &corev1.TerminalSize{Width: 80, Height: 24}})
			for i := range 20 {
				send(&corev1.StreamInput{Data: fmt.Append(nil, i, " ")})
			}
			if end == "a message" {
				send(&corev1.StreamInput{End: true})
			} else if err := stream.CloseSend(); err != nil {
				t.Fatal(err)
			}
			var data, errs, status string
			var err error
			for {
				var out *corev1.StreamOutput
				if out, err = stream.Recv(); err != nil {
					break
				}
				data, errs = data+string(out.GetData()), errs+string(out.GetErrors())
				status += out.GetStatus().GetStatus()
			}
			if data != "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 " || errs != "80x24" || status != "Success" ||
				!errors.Is(err, io.EOF) {
				t.Errorf("ended by %s: %q, %q, %q, %v", end, data, errs, status, err)
			}
			if got, _ := s.last(); got != fmt.Sprintf(`exec n1 %s main ["a" "b c"] %s`, uid, tc.want) {
				t.Errorf("the agent is asked for %s", got)
			}
		}
	}
	attach := must(pods.Attach(ctx(t)))(t)
	if err := attach.Send(&corev1rpc.AttachPodRequest{
		Namespace: "default", Name: "p", Stdin: true, Input: &corev1.StreamInput{Data: []byte("first"), End: true},
	}); err != nil {
		t.Fatal(err)
	}
	if out, err := attach.Recv(); err != nil || string(out.GetData()) != "first" || out.GetStatus() == nil {
		t.Errorf("what came with the request is answered with %v, %v", out, err)
	}
	if got, _ := s.last(); got != fmt.Sprintf("attach n1 %s main in true out false err false tty false", uid) {
		t.Errorf("the agent is asked for %s", got)
	}
	for _, line := range []string{"audit=exec", "audit=attach"} {
		if !strings.Contains(c.log.String(), line) {
			t.Errorf("no %s in the log", line)
		}
	}
}

// forwardOf begins to forward ports of a pod, and returns what comes of it.
func forwardOf(t *testing.T, c client, pod string, ports ...int32) error {
	t.Helper()
	stream := must(c.Pods.PortForward(ctx(t)))(t)
	if err := stream.Send(&corev1rpc.PortForwardPodRequest{
		Namespace: "default", Name: pod, Ports: ports, Input: &corev1.StreamInput{End: true},
	}); err != nil {
		t.Fatal(err)
	}
	_, err := stream.Recv()
	return err
}

// Whom nothing can be asked of is refused before an agent is asked, and is no act of the audit; what an agent refuses
// is passed on.
//
// spec: CTR-9
func TestPodStreamsRefused(t *testing.T) {
	s := &talkers{}
	c := start(t, func(cfg *apiserver.Config) { cfg.Streams = s })
	c.register("n1")
	c.boundPod("p", "n1")
	must(setPhase(t, c.agent("n1"), c.boundPod("done", "n1"), "Succeeded"))(t)
	c.createPod(newPod("waits"))
	exec := func(by client, pod, container string, command ...string) error {
		stream := must(by.Pods.Exec(ctx(t)))(t)
		if err := stream.Send(&corev1rpc.ExecPodRequest{
			Namespace: "default", Name: pod, Container: container, Command: command,
		}); err != nil {
			t.Fatal(err)
		}
		_, err := stream.Recv()
		return err
	}
	admin := c.admin()
	for name, tc := range map[string]struct {
		err  error
		want apierrors.Reason
	}{
		"no command":     {exec(admin, "p", ""), apierrors.BadRequest},
		"no pod":         {exec(admin, "none", "", "x"), apierrors.NotFound},
		"no container":   {exec(admin, "p", "other", "x"), apierrors.BadRequest},
		"it has ended":   {exec(admin, "done", "", "x"), apierrors.Conflict},
		"no node":        {exec(admin, "waits", "", "x"), apierrors.BadRequest},
		"nobody":         {exec(c.as(nil), "p", "", "x"), apierrors.Unauthorized},
		"an agent":       {exec(c.agent("n1"), "p", "", "x"), apierrors.Forbidden},
		"port 0":         {forwardOf(t, admin, "p", 0), apierrors.BadRequest},
		"port 65536":     {forwardOf(t, admin, "p", 65536), apierrors.BadRequest},
		"two ports":      {forwardOf(t, admin, "p", 80, 81), apierrors.BadRequest},
		"of what ended":  {forwardOf(t, admin, "done", 80), apierrors.Conflict},
		"of what is not": {forwardOf(t, admin, "none", 80), apierrors.NotFound},
	} {
		if !apierrors.Is(tc.err, tc.want) {
			t.Errorf("%s: %v, want %s", name, tc.err, tc.want)
		}
	}
	if asked, _ := s.last(); asked != "" || strings.Contains(c.log.String(), "msg=stream") {
		t.Errorf("an agent was asked for %q, the log has\n%s", asked, c.log)
	}
	s.refuse = apierrors.New(apierrors.Conflict, "container not found")
	if err := exec(admin, "p", "", "x"); !apierrors.Is(err, apierrors.Conflict) {
		t.Errorf("the agent refuses: %v", err)
	}
	alone := start(t)
	alone.register("n1")
	alone.boundPod("p", "n1")
	if err := exec(alone.admin(), "p", "", "x"); !apierrors.Is(err, apierrors.ServiceUnavailable) {
		t.Errorf("without agents: %v", err)
	}
}

// A caller that goes ends the conversation with the agent.
//
// spec: CTR-9
func TestPodStreamCallerGone(t *testing.T) {
	s := &talkers{}
	c := start(t, func(cfg *apiserver.Config) { cfg.Streams = s })
	c.register("n1")
	c.boundPod("p", "n1")
	gone, cancel := context.WithCancel(ctx(t))
	stream := must(c.admin().Pods.PortForward(gone))(t)
	err := stream.Send(&corev1rpc.PortForwardPodRequest{Namespace: "default", Name: "p", Ports: []int32{80}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Header(); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := stream.Recv(); err == nil {
		t.Error("somebody who has gone hears something")
	}
	c.server.Stop() // Waits for what the server still does.
	if asked, closed := s.last(); closed != 1 || !strings.HasPrefix(asked, "forward n1 ") {
		t.Errorf("%d of %q were closed", closed, asked)
	}
}
