package election

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"

	"monoplane.dev/apierrors"
)

// Term is a time for which a process leads.
type Term struct {
	identity string

	mu sync.Mutex
	// until is when it ends unless the Lease is renewed before.
	until time.Time
	ended bool
}

// Err returns nil while the term goes on, and then that it is over.
func (t *Term) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended || !time.Now().Before(t.until) {
		return apierrors.New(apierrors.ServiceUnavailable, "%s no longer leads", t.identity)
	}
	return nil
}

// Conn returns a connection for what the leader does: it makes no calls once the term is over.
func (t *Term) Conn(conn grpc.ClientConnInterface) grpc.ClientConnInterface { return leading{conn, t} }

// extend lets the term go on until a time, unless it has ended.
func (t *Term) extend(until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.until = until
}

// end ends the term.
func (t *Term) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
}

// left returns for how long the term goes on unless the Lease is renewed.
func (t *Term) left() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Until(t.until)
}

// leading is the connection of a term.
type leading struct {
	conn grpc.ClientConnInterface
	term *Term
}

// Invoke implements grpc.ClientConnInterface.
func (l leading) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	if err := l.term.Err(); err != nil {
		return err
	}
	return l.conn.Invoke(ctx, method, args, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface.
func (l leading) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	if err := l.term.Err(); err != nil {
		return nil, err
	}
	return l.conn.NewStream(ctx, desc, method, opts...)
}
