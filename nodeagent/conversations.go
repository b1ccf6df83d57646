package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	nodev1rpc "monoplane.dev/api/node/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/calls"
	"monoplane.dev/nodeagent/podstate"
	"monoplane.dev/nodeagent/runtime/stream"
)

// streamPiece is how much of what comes out of a process one message carries. With what is around it a message fits
// gRPC's buffers of 32 KiB; the next larger ones are of 1 MiB.
const streamPiece = 32<<10 - 128

// exec runs a command in a container. spec: CTR-9
func (a *Agent) exec(ctx context.Context, ask *nodev1rpc.ExecCall, answer *calls.Answer) error {
	o := ask.GetOptions()
	in, err := a.runningInstance(ask.GetUid(), o.GetContainer())
	if err != nil {
		return err
	}
	req := &runtimeapi.ExecRequest{ContainerId: in.ID, Cmd: o.GetCommand(), Tty: o.GetTty(), Stdin: o.GetStdin(),
		Stdout: o.GetStdout(), Stderr: o.GetStderr()}
	return a.converse(ctx, answer, func(ctx context.Context, _ *inlet, with stream.Streams) (int32, error) {
		return a.cfg.Streams.ExecStream(ctx, req, with)
	})
}

// attach joins the first process of a container. spec: CTR-9
func (a *Agent) attach(ctx context.Context, ask *nodev1rpc.AttachCall, answer *calls.Answer) error {
	o := ask.GetOptions()
	in, err := a.runningInstance(ask.GetUid(), o.GetContainer())
	if err != nil {
		return err
	}
	req := &runtimeapi.AttachRequest{ContainerId: in.ID, Tty: o.GetTty(), Stdin: o.GetStdin(), Stdout: o.GetStdout(),
		Stderr: o.GetStderr()}
	return a.converse(ctx, answer, func(ctx context.Context, _ *inlet, with stream.Streams) (int32, error) {
		return 0, a.cfg.Streams.AttachStream(ctx, req, with)
	})
}

// forward connects the caller with a port of a pod. spec: CTR-9
func (a *Agent) forward(ctx context.Context, ask *nodev1rpc.PortForwardCall, answer *calls.Answer) error {
	sandbox, err := a.sandboxOf(ask.GetUid())
	if err != nil || ask.GetPort() == 0 {
		return err
	}
	return a.converse(ctx, answer, func(ctx context.Context, in *inlet, with stream.Streams) (int32, error) {
		return 0, a.cfg.Streams.Forward(ctx, sandbox, ask.GetPort(), forwarded{in, outlet{answer, false}})
	})
}

// forwarded is the near end of a connection to a port. The last message of the answer is its end: it is over when the
// port has said all, since clients wait for that before they say that they have.
type forwarded struct {
	*inlet
	outlet
}

// CloseWrite implements stream.Conn.
func (f forwarded) CloseWrite() error {
	f.end()
	return nil
}

// converse accepts a call, has do carry it out, and says how it went.
func (a *Agent) converse(
	ctx context.Context, answer *calls.Answer, do func(context.Context, *inlet, stream.Streams) (int32, error),
) error {
	if err := answer.Accept(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in := &inlet{ctx: ctx, answer: answer, data: make(chan []byte, calls.Window), over: make(chan struct{})}
	sizes := make(chan stream.Size, 1)
	a.spawn(func(context.Context) { in.sort(sizes) })
	code, err := do(ctx, in, stream.Streams{In: in, Out: outlet{answer, false}, Err: outlet{answer, true}, Sizes: sizes})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return answer.Output(&corev1.StreamOutput{Status: howItWent(code, err)})
}

// howItWent is the status that ends a conversation, in the words of kubelets.
func howItWent(code int32, err error) *metav1.Status {
	switch {
	case err != nil && status.Code(err) == codes.Unavailable:
		return apierrors.New(apierrors.ServiceUnavailable, "%s", status.Convert(err).Message()).Status()
	case err != nil:
		return apierrors.New(apierrors.InternalError, "%s", status.Convert(err).Message()).Status()
	case code != 0:
		return &metav1.Status{
			Status: "Failure", Reason: "NonZeroExitCode",
			Message: fmt.Sprintf("command terminated with non-zero exit code: exit status %d", code),
			Details: &metav1.StatusDetails{Causes: []*metav1.StatusCause{
				{Reason: "ExitCode", Message: strconv.Itoa(int(code))},
			}},
		}
	}
	return &metav1.Status{Status: "Success"}
}

// runningInstance returns the instance of a container that runs.
func (a *Agent) runningInstance(uid, container string) (podstate.Instance, error) {
	w := a.workerOf(uid)
	if w == nil {
		return podstate.Instance{}, apierrors.New(apierrors.NotFound, "pod does not exist on this node")
	}
	var in podstate.Instance
	w.look(func(m *podstate.StateMachine) { in, _, _ = m.Instance(container) })
	if in.ID == "" || in.State != podstate.Running {
		return in, apierrors.New(apierrors.Conflict, "container not found (%q): it does not run", container)
	}
	return in, nil
}

// sandboxOf returns the sandbox of a pod of which something runs.
func (a *Agent) sandboxOf(uid string) (string, error) {
	w := a.workerOf(uid)
	if w == nil {
		return "", apierrors.New(apierrors.NotFound, "pod does not exist on this node")
	}
	spec := w.pod().GetSpec()
	sandbox := ""
	w.look(func(m *podstate.StateMachine) {
		for _, c := range slices.Concat(spec.GetContainers(), spec.GetInitContainers()) {
			if in, _, ok := m.Instance(c.GetName()); ok && in.State == podstate.Running && in.SandboxID != "" {
				sandbox = in.SandboxID
				return
			}
		}
	})
	if sandbox == "" {
		return "", apierrors.New(apierrors.Conflict, "unable to forward port because pod is not running. Current status=%s",
			w.pod().GetStatus().GetPhase())
	}
	return sandbox, nil
}

// outlet sends what is written to it.
type outlet struct {
	answer *calls.Answer
	errors bool
}

// Write implements io.Writer.
func (o outlet) Write(b []byte) (int, error) {
	for sent := 0; sent < len(b); {
		piece := slices.Clone(b[sent:min(sent+streamPiece, len(b))])
		if err := o.send(piece); err != nil {
			return sent, err
		}
		sent += len(piece)
	}
	return len(b), nil
}

// ReadFrom implements io.ReaderFrom: it sends all that there is, and what fills a message is not copied for that.
func (o outlet) ReadFrom(from io.Reader) (int64, error) {
	var piece []byte
	for all := int64(0); ; {
		if piece == nil {
			piece = make([]byte, streamPiece)
		}
		n, end := from.Read(piece)
		all += int64(n)
		data := piece[:n:n]
		if n > streamPiece/2 {
			piece = nil // It belongs to the caller now.
		} else {
			data = slices.Clone(data)
		}
		if n > 0 {
			if err := o.send(data); err != nil {
				return all, err
			}
		}
		if errors.Is(end, io.EOF) {
			return all, nil
		} else if end != nil {
			return all, end
		}
	}
}

// send sends one piece, which belongs to the caller from then on.
func (o outlet) send(piece []byte) error {
	if o.errors {
		return o.answer.Output(&corev1.StreamOutput{Errors: piece})
	}
	return o.answer.Output(&corev1.StreamOutput{Data: piece})
}

// inlet is the input of a conversation.
type inlet struct {
	ctx    context.Context
	answer *calls.Answer
	data   chan []byte // Closed at the end. Has room for all that can be on its way.
	rest   []byte
	over   chan struct{} // Closed by end.
}

// end is the end of the input for who reads it, whatever still comes. It is called once at most.
func (n *inlet) end() { close(n.over) }

// sort separates the input from the sizes of the terminal, of which only the newest counts, until it ends.
func (n *inlet) sort(sizes chan stream.Size) {
	ended := false
	for {
		in, err := n.answer.Input(n.ctx)
		if err != nil {
			return
		}
		if s := in.GetSize(); s != nil {
			select {
			case <-sizes:
			default:
			}
			sizes <- stream.Size{Width: uint16(s.GetWidth()), Height: uint16(s.GetHeight())}
		}
		if len(in.GetData()) > 0 && !ended {
			n.data <- in.GetData()
		} else if n.answer.Taken() != nil {
			return
		}
		if in.GetEnd() && !ended {
			ended = true
			close(n.data)
		}
	}
}

// Read implements io.Reader.
func (n *inlet) Read(b []byte) (int, error) {
	if len(n.rest) == 0 {
		select {
		case data, ok := <-n.data:
			if !ok {
				return 0, io.EOF
			}
			n.rest = data
			if err := n.answer.Taken(); err != nil {
				return 0, err
			}
		case <-n.over:
			return 0, io.EOF
		case <-n.ctx.Done():
			return 0, n.ctx.Err()
		}
	}
	read := copy(b, n.rest)
	n.rest = n.rest[read:]
	return read, nil
}
