package nodestreams

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	nodev1 "monoplane.dev/api/node/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/authn"
)

// listener is an agent that waits for calls.
type listener struct {
	calls    chan *nodev1.Call
	replaced chan struct{} // closed when a newer Listen for the node arrived
	ended    chan struct{} // closed when the stream is over
}

// Listen implements nodev1.NodeStreamsServer.
func (b *Broker) Listen(req *nodev1.ListenRequest, stream grpc.ServerStreamingServer[nodev1.Call]) error {
	ctx, node := stream.Context(), req.GetNode()
	if err := mayServe(ctx, node); err != nil {
		return err
	}
	l := b.register(node)
	defer b.unregister(node, l)

	// The agent may rely on being heard as soon as it has the headers.
	if err := stream.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	b.cfg.Logger.Debug("agent listens for calls", "node", node)
	defer b.cfg.Logger.Debug("agent listens no more", "node", node)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.replaced:
			return apierrors.New(apierrors.Conflict, "a newer Listen for node %q replaced this one", node)
		case msg := <-l.calls:
			if err := stream.Send(msg); err != nil {
				return err
			}
		}
	}
}

func (b *Broker) register(node string) *listener {
	l := &listener{calls: make(chan *nodev1.Call), replaced: make(chan struct{}), ended: make(chan struct{})}
	b.mu.Lock()
	defer b.mu.Unlock()
	if old := b.listeners[node]; old != nil {
		close(old.replaced)
	}
	b.listeners[node] = l
	return l
}

func (b *Broker) unregister(node string, l *listener) {
	close(l.ended)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listeners[node] == l {
		delete(b.listeners, node)
	}
}

// Answer implements nodev1.NodeStreamsServer. Data frames are handed to the caller one at a time; the
// stream is read on a goroutine of its own, so that a caller who leaves ends the stream at once.
func (b *Broker) Answer(stream grpc.BidiStreamingServer[nodev1.Frame, nodev1.Frame]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	c, err := b.take(stream.Context(), first.GetCallID())
	if err != nil {
		return err
	}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
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
	case <-finished:
		return nil
	case <-c.gone:
		// Returning ends the stream, which ends a pending Recv of the goroutine above.
		return apierrors.New(apierrors.NotFound, "the caller has gone")
	}
}

// take removes a call from those that wait for an answer, so that it is answered once.
func (b *Broker) take(ctx context.Context, id string) (*call, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.calls[id]
	if c == nil {
		return nil, apierrors.New(apierrors.NotFound, "no call waits for this answer")
	}
	if err := mayServe(ctx, c.node); err != nil {
		return nil, err
	}
	delete(b.calls, id)
	close(c.began)
	return c, nil
}

// mayServe checks that the request comes from node's own agent.
func mayServe(ctx context.Context, node string) error {
	u := authn.UserFrom(ctx)
	if u == nil {
		return apierrors.New(apierrors.Unauthorized, "no identity")
	}
	if node == "" || u.Name != authn.NodePrefix+node || !slices.Contains(u.Groups, authn.NodesGroup) {
		return apierrors.New(apierrors.Forbidden, "%s may not serve node %q", u.Name, node)
	}
	return nil
}
