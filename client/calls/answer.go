package calls

import (
	"context"
	"sync"

	"google.golang.org/grpc"

	corev1 "monoplane.dev/api/core/v1"
	nodev1rpc "monoplane.dev/api/node/v1/rpc"
)

// Window is how many frames of input may be on their way that a component has not taken.
const Window = 16

// Answer is what a component says to one call, and hears. Its methods may be called from several goroutines.
type Answer struct {
	input chan *corev1.StreamInput // Invariant: nobody waits for room; the server keeps to the window.

	mu     sync.Mutex // One frame is sent at a time.
	stream grpc.BidiStreamingClient[nodev1rpc.Frame, nodev1rpc.Frame]
	taken  int32
}

// Send sends bytes.
func (a *Answer) Send(data []byte) error { return a.send(&nodev1rpc.Frame{Data: data}) }

// Accept tells the caller of a conversation that it has begun.
func (a *Answer) Accept() error { return a.send(&nodev1rpc.Frame{}) }

// Output sends a piece of output, which belongs to the caller from then on.
func (a *Answer) Output(out *corev1.StreamOutput) error { return a.send(&nodev1rpc.Frame{Output: out}) }

// Input returns the next piece of input. Taken is to be called for each, when there is room for another.
func (a *Answer) Input(ctx context.Context) (*corev1.StreamInput, error) {
	select {
	case in := <-a.input:
		return in, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Taken says that a piece of input was dealt with. The server is told when it was half a window.
func (a *Answer) Taken() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.taken++; a.taken < Window/2 {
		return nil
	}
	f := &nodev1rpc.Frame{Taken: a.taken}
	a.taken = 0
	return a.stream.Send(f)
}

func (a *Answer) send(f *nodev1rpc.Frame) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stream.Send(f)
}

// put keeps a piece of input. It is false when the server has not kept to the window.
func (a *Answer) put(in *corev1.StreamInput) bool {
	select {
	case a.input <- in:
		return true
	default:
		return false
	}
}
