// Package fair bounds how many requests are served at once, so that no client can starve another: clients are told
// apart by their users.
//
// What it guarantees:
//   - A user has at most three quarters of the seats at a time, so that requests of his that hang leave room.
//   - Where there is no seat, requests wait. Those of one user are served in their order, and the users in turns: who
//     sends one request waits for one of each of the others, however many those have sent.
//   - A wait has an end, and so has the number that wait for one user. Beyond either a request is refused with
//     TooManyRequests and a time after which to come again.
//   - What lasts (watches, logs that are followed, exec) has seats of its own, of which one user has half at most, and
//     never waits for one.
//   - A request that finds a seat costs no allocation.
//
// Components in the process do not come here. Use: New, then Acquire and Seat.Release around each request, and
// AcquireLong for what lasts; Unary and Stream are for gRPC.
//
// It does not look at what a request costs: a list of all pods has one seat, as has a get.
package fair

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/authn"
)

const (
	// defaultSeats is how many requests are served at once.
	defaultSeats = 600
	// defaultLong is how many of what lasts there may be.
	defaultLong = 16 << 10
	// defaultQueue is how many requests of one user may wait.
	defaultQueue = 1000
	// defaultWait is how long one may wait, a quarter of the time of a request.
	defaultWait = 15 * time.Second
	// manyFlows is how many users are remembered before those without requests are forgotten.
	manyFlows = 1024
)

// Config bounds requests. Zero values stand for the defaults.
type Config struct {
	// Seats is how many requests are served at once; 600.
	Seats int
	// Long is how many requests that last there may be; 16 384.
	Long int
	// Queue is how many requests of one user may wait, 1 000, and Wait how long, 15 s.
	Queue int
	Wait  time.Duration
}

// Limiter gives requests their seats. It is safe for concurrent use.
//
//	          a seat is free, and the user has not too many
//	request ─────────────────────────────────────────────────▶ served ─Release─▶
//	   │                                                          ▲
//	   └──▶ waits ──── a seat is released, the user has his turn ─┘
//	   │      └─────── too long, or the client is gone ──▶ refused
//	   └──▶ refused: too many of the user wait
type Limiter struct {
	seats, each, long, longEach, queue int
	wait                               time.Duration

	mu           sync.Mutex
	taken, lasts int
	flows        map[string]*flow
	// turns are the users for whom requests wait, the next one first. Invariant: a user of whom none waits is not there.
	turns []*flow
}

// flow is what there is of one user.
type flow struct {
	taken, lasts int
	waiting      []*waiter
}

// waiter is a request that waits. Ready is closed once it has a seat.
type waiter struct{ ready chan struct{} }

// New returns a Limiter.
func New(cfg Config) *Limiter {
	l := &Limiter{
		seats: or(cfg.Seats, defaultSeats), long: or(cfg.Long, defaultLong), queue: or(cfg.Queue, defaultQueue),
		wait: cfg.Wait, flows: make(map[string]*flow),
	}
	if l.wait == 0 {
		l.wait = defaultWait
	}
	l.each, l.longEach = max(l.seats*3/4, 1), max(l.long/2, 1)
	return l
}

func or(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}

// Seat is what a request holds while it is served. Release gives it back, once.
type Seat struct {
	limiter *Limiter
	flow    *flow
	long    bool
}

// Acquire returns a seat for a request of a user, waiting for it if it must. Errors: TooManyRequests.
func (l *Limiter) Acquire(ctx context.Context, user string) (Seat, error) {
	l.mu.Lock()
	f := l.flow(user)
	switch {
	case len(f.waiting) == 0 && l.has(f):
		l.take(f)
		l.mu.Unlock()
		return Seat{limiter: l, flow: f}, nil
	case len(f.waiting) >= l.queue:
		l.mu.Unlock()
		return Seat{}, refused()
	}
	w := &waiter{ready: make(chan struct{})}
	if len(f.waiting) == 0 {
		l.turns = append(l.turns, f)
	}
	f.waiting = append(f.waiting, w)
	l.mu.Unlock()
	return l.await(ctx, f, w)
}

// has says whether there is a seat for a user.
func (l *Limiter) has(f *flow) bool { return l.taken < l.seats && f.taken < l.each }

func (l *Limiter) take(f *flow) {
	l.taken++
	f.taken++
}

// await waits for the turn of a request.
func (l *Limiter) await(ctx context.Context, f *flow, w *waiter) (Seat, error) {
	timer := time.NewTimer(l.wait)
	defer timer.Stop()
	select {
	case <-w.ready:
		return Seat{limiter: l, flow: f}, nil
	case <-ctx.Done():
	case <-timer.C:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, other := range f.waiting {
		if other == w {
			f.waiting = append(f.waiting[:i:i], f.waiting[i+1:]...)
			if len(f.waiting) == 0 {
				l.leave(f)
			}
			return Seat{}, refused()
		}
	}
	return Seat{limiter: l, flow: f}, nil // its turn came at the same moment
}

// leave takes a user of whom none waits out of the turns.
func (l *Limiter) leave(f *flow) {
	for i, other := range l.turns {
		if other == f {
			l.turns = append(l.turns[:i], l.turns[i+1:]...)
			return
		}
	}
}

// AcquireLong returns a seat for a request that lasts. Errors: TooManyRequests.
func (l *Limiter) AcquireLong(user string) (Seat, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.flow(user)
	if l.lasts >= l.long || f.lasts >= l.longEach {
		return Seat{}, refused()
	}
	l.lasts++
	f.lasts++
	return Seat{limiter: l, flow: f, long: true}, nil
}

// Release gives the seat to the next user for whom requests wait, if any. Who has had his turn goes to the end.
func (s Seat) Release() {
	l := s.limiter
	l.mu.Lock()
	if s.long {
		l.lasts--
		s.flow.lasts--
	} else {
		l.taken--
		s.flow.taken--
		if len(l.turns) > 0 {
			l.next()
		}
	}
	l.mu.Unlock()
}

// next gives free seats to those whose turn it is.
func (l *Limiter) next() {
	for i := 0; i < len(l.turns) && l.taken < l.seats; {
		f := l.turns[i]
		if !l.has(f) { // he has as many as one may have
			i++
			continue
		}
		l.take(f)
		close(f.waiting[0].ready)
		f.waiting = f.waiting[1:]
		l.turns = append(l.turns[:i], l.turns[i+1:]...)
		if len(f.waiting) > 0 {
			l.turns = append(l.turns, f)
		} else {
			f.waiting = nil
		}
	}
}

// flow returns what there is of a user.
func (l *Limiter) flow(user string) *flow {
	if f, ok := l.flows[user]; ok {
		return f
	}
	if len(l.flows) >= manyFlows {
		for name, f := range l.flows {
			if f.taken == 0 && f.lasts == 0 && len(f.waiting) == 0 {
				delete(l.flows, name)
			}
		}
	}
	f := &flow{}
	l.flows[user] = f
	return f
}

func refused() error {
	return apierrors.New(apierrors.TooManyRequests, "too many requests at once, please try again later").WithRetryAfter(1)
}

// User is whose seats a request takes: those of who really makes it.
func User(ctx context.Context) string {
	u := authn.UserFrom(ctx)
	switch {
	case u == nil:
		return authn.AnonymousName
	case u.Impersonator != nil:
		return u.Impersonator.Name
	}
	return u.Name
}

// Unary bounds calls that come over the network.
func (l *Limiter) Unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
	seat, err := l.Acquire(ctx, User(ctx))
	if err != nil {
		return nil, err
	}
	defer seat.Release()
	return h(ctx, req)
}

// Stream bounds streams that come over the network. All of them may last.
func (l *Limiter) Stream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
	seat, err := l.AcquireLong(User(stream.Context()))
	if err != nil {
		return err
	}
	defer seat.Release()
	return h(srv, stream)
}
