package calls

import (
	"context"
	"errors"
	"io"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	nodev1rpc "monoplane.dev/api/node/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/calls"
)

// Conversation is a call whose streams go both ways. One goroutine may Send while another calls Recv.
type Conversation struct {
	ctx   context.Context
	c     *call
	room  chan struct{} // Has an element for each frame of input that the component has not taken.
	close func()
	ended func(err error) error
}

// Open asks the component of that name, and returns once it has begun to answer. The conversation ends with ctx, or
// when it is closed, which it must be. Errors: as of Do.
func (b *Broker[C]) Open(ctx context.Context, name string, ask func(id string) C) (*Conversation, error) {
	answer := time.NewTimer(b.cfg.AnswerTimeout)
	defer answer.Stop()
	c, id, err := b.open(ctx, name, ask, answer.C, make(chan *nodev1rpc.Frame))
	if err != nil {
		return nil, err
	}
	select {
	case <-c.began:
		return &Conversation{
			ctx: ctx, c: c, room: make(chan struct{}, calls.Window), close: func() { b.close(c, id) },
			ended: func(err error) error {
				if err := b.ended(name, err); err != nil {
					return err
				}
				return io.EOF
			},
		}, nil
	case <-c.ended:
		err = apierrors.New(apierrors.ServiceUnavailable, "%s went away", b.cfg.Who(name))
	case <-ctx.Done():
		err = ctx.Err()
	case <-answer.C:
		err = b.late(name)
	}
	b.close(c, id)
	return nil, err
}

// errOver says that the component takes no more input. Recv says why.
var errOver = errors.New("the answer is over")

// Send passes on a piece of input, once the component has taken enough of those before it. It fails when the
// conversation is over. The message belongs to the component from then on.
func (v *Conversation) Send(in *corev1.StreamInput) error {
	select {
	case v.room <- struct{}{}:
	case <-v.c.over:
		return errOver
	case <-v.ctx.Done():
		return v.ctx.Err()
	}
	select {
	case v.c.input <- &nodev1rpc.Frame{Input: in}:
		return nil
	case <-v.c.over:
		return errOver
	case <-v.ctx.Done():
		return v.ctx.Err()
	}
}

// Recv returns the next piece of output; the first is empty, and says that the component has accepted the call. io.EOF
// is the end of the answer. Other errors: as of Do.
func (v *Conversation) Recv() (*corev1.StreamOutput, error) {
	for {
		select {
		case <-v.ctx.Done():
			return nil, v.ctx.Err()
		case f := <-v.c.frames:
			switch {
			case f.err != nil:
				return nil, v.ended(f.err)
			case f.GetError() != "":
				return nil, apierrors.New(reason(f.GetReason()), "%s", f.GetError())
			case f.GetTaken() > 0:
				v.taken(int(f.GetTaken()))
			case f.GetCallID() == "":
				out := f.GetOutput()
				if out == nil {
					out = &corev1.StreamOutput{}
				}
				return out, nil
			}
		}
	}
}

// taken makes room. A component that says that it has taken more than there was gains nothing by it.
func (v *Conversation) taken(n int) {
	for range min(n, calls.Window) {
		select {
		case <-v.room:
		default:
			return
		}
	}
}

// Close ends the conversation, which the component is told.
func (v *Conversation) Close() { v.close() }
