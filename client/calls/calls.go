// Package calls is a component's side of the streams over which the API server asks it something (NodeStreams,
// SchedulerStreams): it listens for calls and answers each on a stream of its own.
//
// Guarantees: a lost connection is mended with back-off; a listener that another one has replaced tries again after a
// while, for it may be the other that ends; the context of an answer ends when the caller has gone.
//
// It does not bound how many calls are answered at once: the server does.
package calls

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	corev1 "monoplane.dev/api/core/v1"
	nodev1rpc "monoplane.dev/api/node/v1/rpc"
	"monoplane.dev/apierrors"
)

// Call is the message of a call.
type Call interface{ GetId() string }

// Config is what Serve needs. All of it is required.
type Config[C Call] struct {
	// Listen opens the stream of calls and returns its Recv.
	Listen func(ctx context.Context) (func() (C, error), error)
	// Answer opens the stream of an answer.
	Answer func(ctx context.Context, opts ...grpc.CallOption) (grpc.BidiStreamingClient[nodev1rpc.Frame, nodev1rpc.Frame],
		error)
	// Do answers a call. Its error is passed on to the caller.
	Do func(ctx context.Context, call C, answer *Answer) error
	// Spawn runs f on a goroutine of its own, with a context that ends with the component, or not at all once that has
	// ended.
	Spawn  func(f func(ctx context.Context))
	Logger *slog.Logger
}

// The waits between two attempts to listen.
const first, most = 100 * time.Millisecond, 10 * time.Second

// Serve serves calls until ctx ends, and returns its error. Answers may go on.
func Serve[C Call](ctx context.Context, cfg Config[C]) error {
	for wait := first; ; {
		began := time.Now()
		err := cfg.listen(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Since(began) > most {
			wait = first
		}
		if status.Code(err) == codes.Aborted {
			wait = most
		}
		cfg.Logger.Debug("not listening for calls", "error", err)
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
		wait = min(2*wait, most)
	}
}

func (c *Config[C]) listen(ctx context.Context) error {
	next, err := c.Listen(ctx)
	if err != nil {
		return err
	}
	for {
		call, err := next()
		if err != nil {
			return err
		}
		c.Spawn(func(ctx context.Context) { c.answer(ctx, call) })
	}
}

// answer serves one call.
func (c *Config[C]) answer(ctx context.Context, call C) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.Answer(ctx)
	if err != nil {
		return // the caller is told by a time-out
	}
	answer := &Answer{stream: stream, input: make(chan *corev1.StreamInput, Window)}
	// The end of the stream means that the caller has gone. It is always read, so that this is seen at once.
	c.Spawn(func(context.Context) {
		defer cancel()
		for {
			f, err := stream.Recv()
			if err != nil || f.GetInput() == nil || !answer.put(f.GetInput()) {
				return
			}
		}
	})
	if stream.Send(&nodev1rpc.Frame{CallID: call.GetId()}) != nil {
		return
	}
	if err := c.Do(ctx, call, answer); err != nil && ctx.Err() == nil {
		e := apierrors.From(err)
		_ = answer.send(&nodev1rpc.Frame{Error: e.Error(), Reason: string(e.Reason())})
	}
	_ = stream.CloseSend()
	<-ctx.Done() // the server ends the stream once it has passed everything on
}
