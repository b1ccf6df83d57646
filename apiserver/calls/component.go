package calls

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	nodev1rpc "monoplane.dev/api/node/v1/rpc"
	"monoplane.dev/apierrors"
)

// listener is a component that waits for calls.
type listener[C any] struct {
	ctx      context.Context // of the stream, with the identity
	calls    chan C
	replaced chan string   // gets the name for which a newer Listen arrived
	ended    chan struct{} // closed when the stream is over
}

// sender is the stream of Listen.
type sender[C any] interface {
	Context() context.Context
	SendHeader(md metadata.MD) error
	Send(call C) error
}

// Listen serves the stream on which a component waits for the calls of its names, of which there is at least one.
func (b *Broker[C]) Listen(names []string, stream sender[C]) error {
	ctx := stream.Context()
	for _, name := range names {
		if err := b.cfg.MayServe(ctx, name); err != nil {
			return err
		}
	}
	l := b.register(ctx, names)
	defer b.unregister(names, l)

	// The component may rely on being heard as soon as it has the headers.
	if err := stream.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	b.cfg.Logger.Debug("listens for calls", "names", names)
	defer b.cfg.Logger.Debug("listens no more for calls", "names", names)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case name := <-l.replaced:
			return apierrors.New(apierrors.Conflict, "a newer Listen for %s replaced this one", b.cfg.Who(name))
		case msg := <-l.calls:
			if err := stream.Send(msg); err != nil {
				return err
			}
		}
	}
}

func (b *Broker[C]) register(ctx context.Context, names []string) *listener[C] {
	l := &listener[C]{ctx: ctx, calls: make(chan C), replaced: make(chan string, 1), ended: make(chan struct{})}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range names {
		if old := b.listeners[name]; old != nil && old != l {
			select {
			case old.replaced <- name:
			default: // it knows
			}
		}
		b.listeners[name] = l
	}
	return l
}

func (b *Broker[C]) unregister(names []string, l *listener[C]) {
	close(l.ended)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range names {
		if b.listeners[name] == l {
			delete(b.listeners, name)
		}
	}
}

// Answer serves the stream on which a component answers one call. Data frames are handed to the caller one at a time;
// the stream is read on a goroutine of its own, so that a caller who leaves ends the stream at once.
func (b *Broker[C]) Answer(stream grpc.BidiStreamingServer[nodev1rpc.Frame, nodev1rpc.Frame]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	c, err := b.take(stream.Context(), first.GetCallID())
	if err != nil {
		return err
	}
	if c.input != nil {
		// Of its own, too: a component that does not read must not keep this from seeing that the caller has gone.
		go func() {
			for {
				select {
				case f := <-c.input:
					if stream.Send(f) != nil {
						return // the other goroutine learns why
					}
				case <-c.gone:
					return
				case <-c.over:
					return
				}
			}
		}()
	}
	go func() {
		defer close(c.over)
		for f := (frame{Frame: first}); ; {
			select {
			case c.frames <- f:
			case <-c.gone:
				return
			}
			if f.err != nil {
				return
			}
			f.Frame, f.err = stream.Recv()
		}
	}()
	select {
	case <-c.over:
		return nil
	case <-c.gone:
		// Returning ends the stream, which ends a pending Recv of the goroutine above.
		return apierrors.New(apierrors.NotFound, "the caller has gone")
	}
}

// take removes a call from those that wait for an answer, so that it is answered once.
func (b *Broker[C]) take(ctx context.Context, id string) (*call, error) {
	none := apierrors.New(apierrors.NotFound, "no call waits for this answer")
	b.mu.Lock()
	c := b.calls[id]
	b.mu.Unlock()
	if c == nil {
		return nil, none
	}
	if err := b.cfg.MayServe(ctx, c.name); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.calls[id] != c {
		return nil, none
	}
	delete(b.calls, id)
	close(c.began)
	return c, nil
}
