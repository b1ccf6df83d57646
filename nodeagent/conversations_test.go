package nodeagent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	nodev1rpc "monoplane.dev/api/node/v1/rpc"
	"monoplane.dev/client/calls"
	"monoplane.dev/client/inproc"
	"monoplane.dev/nodeagent/runtime/stream"
)

// talks is the server's side of conversations: it asks, and hands over the stream of each answer.
type talks struct {
	nodev1rpc.UnimplementedNodeStreamsServer

	calls   chan *nodev1rpc.Call
	answers chan *talk
}

// talk is one conversation.
type talk struct {
	nodev1rpc.NodeStreams_AnswerServer

	over chan struct{}
}

func (s *talks) Listen(_ *nodev1rpc.ListenRequest, stream nodev1rpc.NodeStreams_ListenServer) error {
	for {
		select {
		case c := <-s.calls:
			if err := stream.Send(c); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func (s *talks) Answer(stream nodev1rpc.NodeStreams_AnswerServer) error {
	if _, err := stream.Recv(); err != nil { // Which call it is.
		return err
	}
	t := &talk{stream, make(chan struct{})}
	select {
	case s.answers <- t:
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
	select {
	case <-t.over:
		return nil
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
}

// ask begins a conversation.
func (s *talks) ask(c *nodev1rpc.Call) *talk {
	s.calls <- c
	return <-s.answers
}

// end is that of the caller.
func (t *talk) end() { close(t.over) }

// say sends input.
func (t *talk) say(w *world, in *corev1.StreamInput) {
	w.t.Helper()
	if err := t.Send(&nodev1rpc.Frame{Input: in}); err != nil {
		w.t.Fatal(err)
	}
}

// heard is what an agent has said.
type heard struct {
	accepted    bool
	out, errors []byte
	status      string // Reason and message of the last word.
	refusal     string
	taken       int
	largest     int // Of the pieces of output.
}

// listen takes what the agent says until its end. Room, unless it is nil, gets an element for each piece of input that
// was taken.
func (t *talk) listen(room chan<- struct{}) (h heard) {
	for {
		f, err := t.Recv()
		if err != nil {
			return h
		}
		o := f.GetOutput()
		h.taken += int(f.GetTaken())
		for range f.GetTaken() {
			if room != nil {
				room <- struct{}{}
			}
		}
		h.out, h.errors = append(h.out, o.GetData()...), append(h.errors, o.GetErrors()...)
		h.largest = max(h.largest, len(o.GetData()), len(o.GetErrors()))
		switch st := o.GetStatus(); {
		case f.GetError() != "":
			h.refusal = f.GetReason() + ": " + f.GetError()
		case st != nil:
			h.status = strings.TrimSpace(fmt.Sprint(st.GetStatus(), " ", st.GetReason(), " ", st.GetMessage()))
			for _, c := range st.GetDetails().GetCauses() {
				h.status += fmt.Sprint(" ", c.GetReason(), "=", c.GetMessage())
			}
		case o == nil && f.GetTaken() == 0:
			h.accepted = true
		}
	}
}

// scripted is a runtime whose streams do what a test says.
type scripted struct {
	command func(ctx context.Context, with stream.Streams) (int32, error)
	port    func(ctx context.Context, near stream.Conn) error

	exec   *runtimeapi.ExecRequest
	attach *runtimeapi.AttachRequest
	port1  int32
}

func (s *scripted) ExecStream(
	ctx context.Context, req *runtimeapi.ExecRequest, with stream.Streams,
) (int32, error) {
	s.exec = req
	return s.command(ctx, with)
}

func (s *scripted) AttachStream(ctx context.Context, req *runtimeapi.AttachRequest, with stream.Streams) error {
	s.attach = req
	_, err := s.command(ctx, with)
	return err
}

func (s *scripted) Forward(ctx context.Context, _ string, port int32, near stream.Conn) error {
	s.port1 = port
	return s.port(ctx, near)
}

// inTalks runs f in a world with a pod that runs, and one that has ended.
func inTalks(t *testing.T, rt *scripted, f func(w *world, s *talks, runs, ended *corev1.Pod)) {
	dir := t.TempDir()
	inWorld(t, func(w *world) {
		s := &talks{calls: make(chan *nodev1rpc.Call), answers: make(chan *talk)}
		srv := inproc.NewServer(nil, nil)
		defer srv.Stop()
		nodev1rpc.RegisterNodeStreamsServer(srv, s)
		c := *w.cfg.Client
		c.NodeStreams = nodev1rpc.NewNodeStreamsClient(srv.Conn())
		w.cfg.Client, w.cfg.PodLogDir, w.cfg.NoStreams, w.cfg.Streams = &c, dir, false, rt
		w.start()
		runs := w.create("runs")
		ended := w.create("ended", restart("Never"), annotated("exit-after", "1s"))
		time.Sleep(5 * time.Second)
		w.phase("runs", "Running")
		w.phase("ended", "Succeeded")
		f(w, s, runs, ended)
	})
}

func execCall(p *corev1.Pod, o *corev1.PodExecOptions) *nodev1rpc.Call {
	o.Container = "main"
	return &nodev1rpc.Call{Id: "x", Request: &nodev1rpc.Call_Exec{Exec: &nodev1rpc.ExecCall{
		Uid: p.GetMetadata().GetUid(), Options: o,
	}}}
}

func forwardCall(p *corev1.Pod, port int32) *nodev1rpc.Call {
	return &nodev1rpc.Call{Id: "x", Request: &nodev1rpc.Call_PortForward{PortForward: &nodev1rpc.PortForwardCall{
		Uid: p.GetMetadata().GetUid(), Port: port,
	}}}
}

// What goes in reaches the command in order, up to its end, of the terminal's sizes the newest; what comes out arrives
// in pieces that fit a message; the last word is the exit code. The server learns what was taken, and never of more.
//
// spec: CTR-9
func TestExecConversation(t *testing.T) {
	const pieces = 100
	var said []byte
	var sized chan struct{} // Of the bubble.
	rt := &scripted{command: func(_ context.Context, with stream.Streams) (int32, error) {
		<-sized
		size := <-with.Sizes
		fmt.Fprintf(with.Err, "%dx%d", size.Width, size.Height)
		all, err := io.ReadAll(with.In)
		if err != nil {
			return 0, err
		}
		_, err = with.Out.Write(all)
		return 3, err
	}}
	inTalks(t, rt, func(w *world, s *talks, runs, _ *corev1.Pod) {
		sized = make(chan struct{})
		answer := s.ask(execCall(runs, &corev1.PodExecOptions{
			Command: []string{"a", "b"}, Stdin: true, Stdout: true, Stderr: true, Tty: true,
		}))
		room, done := make(chan struct{}, 1000), make(chan heard)
		for range calls.Window {
			room <- struct{}{}
		}
		sent := 0
		send := func(in *corev1.StreamInput) {
			<-room
			sent++
			answer.say(w, in)
		}
		go func() { done <- answer.listen(room) }()
		for _, width := range []int32{80, 100, 132} {
			send(&corev1.StreamInput{Size: &corev1.TerminalSize{Width: width, Height: 24}})
		}
		synctest.Wait()
		close(sized)
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		for i := range pieces {
			piece := bytes.Repeat([]byte{byte(i)}, 1+random.IntN(32<<10))
			said = append(said, piece...)
			send(&corev1.StreamInput{Data: piece})
		}
		send(&corev1.StreamInput{End: true})
		send(&corev1.StreamInput{Data: []byte("after the end")}) // Dropped.
		h := <-done
		answer.end()
		if !h.accepted || !bytes.Equal(h.out, said) || string(h.errors) != "132x24" {
			t.Errorf("accepted %v, %d bytes of %d, %q", h.accepted, len(h.out), len(said), h.errors)
		}
		const want = "Failure NonZeroExitCode command terminated with non-zero exit code: exit status 3 ExitCode=3"
		if h.status != want {
			t.Errorf("it ends with %q", h.status)
		}
		if h.taken > sent || h.taken < sent-calls.Window {
			t.Errorf("%d of %d pieces were taken", h.taken, sent)
		}
		if h.largest > 32<<10 {
			t.Errorf("a message carries %d bytes", h.largest)
		}
		if r := rt.exec; r.GetContainerId() == "" || !slices.Equal(r.GetCmd(), []string{"a", "b"}) || !r.GetTty() ||
			!r.GetStdin() || !r.GetStdout() || !r.GetStderr() {
			t.Errorf("the runtime is asked for %v", r)
		}
	})
}

// How a command went is said in the words of kubelets.
//
// spec: CTR-9
func TestConversationEnds(t *testing.T) {
	var code int32
	var err error
	rt := &scripted{command: func(context.Context, stream.Streams) (int32, error) { return code, err }}
	inTalks(t, rt, func(_ *world, s *talks, runs, _ *corev1.Pod) {
		for _, c := range []struct {
			code int32
			err  error
			want string
		}{
			{0, nil, "Success"},
			{137, nil, "Failure NonZeroExitCode command terminated with non-zero exit code: exit status 137 ExitCode=137"},
			{0, status.Error(codes.Unavailable, "shim gone"), "Failure ServiceUnavailable shim gone"},
			{0, status.Error(codes.NotFound, "no such container"), "Failure InternalError no such container"},
			{0, errors.New("/no/such: does not exist"), "Failure InternalError /no/such: does not exist"},
		} {
			code, err = c.code, c.err
			answer := s.ask(execCall(runs, &corev1.PodExecOptions{Command: []string{"x"}, Stdout: true}))
			if h := answer.listen(nil); !h.accepted || h.status != c.want || h.refusal != "" {
				t.Errorf("%d, %v: %+v", c.code, c.err, h)
			}
			answer.end()
		}
		code, err = 0, nil
		attach := s.ask(&nodev1rpc.Call{Id: "x", Request: &nodev1rpc.Call_Attach{Attach: &nodev1rpc.AttachCall{
			Uid: runs.GetMetadata().GetUid(), Options: &corev1.PodAttachOptions{Container: "main", Stdin: true},
		}}})
		if h := attach.listen(nil); !h.accepted {
			t.Errorf("attach: %+v", h)
		}
		attach.end()
		if rt.attach.GetContainerId() == "" || !rt.attach.GetStdin() || rt.attach.GetStdout() {
			t.Errorf("the runtime is asked for %v", rt.attach)
		}
	})
}

// What cannot be talked with is refused before anything is accepted.
//
// spec: CTR-9
func TestConversationsRefused(t *testing.T) {
	rt := &scripted{}
	inTalks(t, rt, func(_ *world, s *talks, runs, ended *corev1.Pod) {
		nobody := &corev1.Pod{Metadata: runs.GetMetadata().Shallow()}
		nobody.Metadata.Uid = "other"
		for name, c := range map[string]struct {
			call *nodev1rpc.Call
			want string
		}{
			"exec, no pod": {execCall(nobody, &corev1.PodExecOptions{Command: []string{"x"}}),
				"NotFound: pod does not exist on this node"},
			"exec, ended": {execCall(ended, &corev1.PodExecOptions{Command: []string{"x"}}),
				`Conflict: container not found ("main"): it does not run`},
			"forward, no pod": {forwardCall(nobody, 80), "NotFound: pod does not exist on this node"},
			"forward, ended": {forwardCall(ended, 80),
				"Conflict: unable to forward port because pod is not running. Current status=Succeeded"},
			"forward, only asked": {forwardCall(runs, 0), ""},
		} {
			answer := s.ask(c.call)
			if h := answer.listen(nil); h.accepted || h.status != "" || h.refusal != c.want {
				t.Errorf("%s: %+v", name, h)
			}
			answer.end()
		}
	})
}

// A caller that goes ends what it has begun, also while that neither reads nor writes; the input fails with it.
//
// spec: CTR-9
func TestConversationCallerGone(t *testing.T) {
	var ended chan error // Of the bubble.
	rt := &scripted{command: func(ctx context.Context, with stream.Streams) (int32, error) {
		<-ctx.Done()
		_, err := with.In.Read(make([]byte, 1))
		ended <- err
		return 0, ctx.Err()
	}}
	inTalks(t, rt, func(w *world, s *talks, runs, _ *corev1.Pod) {
		ended = make(chan error, 1)
		answer := s.ask(execCall(runs, &corev1.PodExecOptions{Command: []string{"x"}, Stdin: true}))
		if f, err := answer.Recv(); err != nil || f.GetOutput() != nil || f.GetError() != "" {
			t.Fatalf("%v, %v", f, err)
		}
		synctest.Wait()
		if len(ended) > 0 {
			t.Fatal("the command has ended by itself")
		}
		answer.end()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the input ends with %v", err)
		}
		w.phase("runs", "Running")
	})
}

// A command that does not read takes no more input than a window, and goes on to be heard.
//
// spec: CTR-9
func TestCommandThatDoesNotRead(t *testing.T) {
	var read chan struct{} // Of the bubble.
	rt := &scripted{command: func(_ context.Context, with stream.Streams) (int32, error) {
		if _, err := io.WriteString(with.Out, "busy"); err != nil {
			return 0, err
		}
		<-read
		n, err := io.Copy(io.Discard, with.In)
		fmt.Fprintf(with.Out, ", read %d", n)
		return 0, err
	}}
	inTalks(t, rt, func(w *world, s *talks, runs, _ *corev1.Pod) {
		read = make(chan struct{})
		answer := s.ask(execCall(runs, &corev1.PodExecOptions{Command: []string{"x"}, Stdin: true, Stdout: true}))
		for range calls.Window - 1 {
			answer.say(w, &corev1.StreamInput{Data: []byte("1234")})
		}
		heardAll := make(chan heard)
		go func() { heardAll <- answer.listen(nil) }()
		synctest.Wait()
		close(read)
		answer.say(w, &corev1.StreamInput{End: true})
		h := <-heardAll
		answer.end()
		if want := fmt.Sprintf("busy, read %d", 4*(calls.Window-1)); string(h.out) != want || h.status != "Success" {
			t.Errorf("%q, %q; want %q", h.out, h.status, want)
		}
	})
}

// What a port says arrives whole, in messages of their own; that it has said all ends the conversation, though the
// client says nothing, and what the client says arrives at the port.
//
// spec: CTR-9
func TestForwardConversation(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var text []byte
	for i := range 50 {
		text = append(text, bytes.Repeat([]byte{byte(i)}, 1+random.IntN(100_000))...)
	}
	var asked []byte
	rt := &scripted{port: func(_ context.Context, near stream.Conn) error {
		asked = make([]byte, 5)
		if _, err := io.ReadFull(near, asked); err != nil {
			return err
		}
		// In pieces of any size, as a socket gives them.
		from := &ragged{data: text, random: random}
		if _, err := io.Copy(near, from); err != nil {
			return err
		}
		if err := near.CloseWrite(); err != nil {
			return err
		}
		_, err := io.Copy(io.Discard, near)
		return err
	}}
	inTalks(t, rt, func(w *world, s *talks, runs, _ *corev1.Pod) {
		answer := s.ask(forwardCall(runs, 8080))
		answer.say(w, &corev1.StreamInput{Data: []byte("hello")})
		h := answer.listen(nil)
		answer.end()
		if !h.accepted || h.status != "Success" || !bytes.Equal(h.out, text) || h.largest > 32<<10 {
			t.Errorf("accepted %v, %q, %d bytes of %d, the largest piece %d", h.accepted, h.status, len(h.out), len(text),
				h.largest)
		}
		if string(asked) != "hello" || rt.port1 != 8080 {
			t.Errorf("port %d is told %q", rt.port1, asked)
		}
	})
}

// ragged gives its data in pieces of any size.
type ragged struct {
	data   []byte
	random *rand.Rand
}

func (r *ragged) Read(b []byte) (int, error) {
	if len(r.data) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:1+r.random.IntN(len(b))], r.data)
	r.data = r.data[n:]
	return n, nil
}
