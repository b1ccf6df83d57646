package calls

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	nodev1rpc "monoplane.dev/api/node/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/fair"
	"monoplane.dev/internal/share"
)

// Config says how a Broker behaves. The functions are required.
type Config struct {
	// Who calls a component by its name in messages, such as `the agent of node "a"`.
	Who func(name string) string
	// Absent is added to the message that a component is not connected.
	Absent string
	// MayServe refuses an identity that may not listen and answer for a name. It is asked again for each call, since a
	// name may get another owner while somebody listens. No lock is held meanwhile.
	MayServe func(ctx context.Context, name string) error
	// AnswerTimeout is how long a component may take to begin its answer; 10 s when zero.
	AnswerTimeout time.Duration
	// MaxCalls is how many calls one name may serve at a time; 256 when zero. More are refused, and so are those of a
	// user who has as many as are left for all others.
	MaxCalls int
	// Logger gets one line when a component begins or ceases to listen; discarded when nil.
	Logger *slog.Logger
}

// Broker brings callers and components together. C is the message of a call. Use New.
type Broker[C any] struct {
	cfg Config

	mu sync.Mutex
	// Invariant: at most one listener per name, the newest.
	listeners map[string]*listener[C]
	// calls holds the calls that nobody has begun to answer. Invariant: an id leaves when it is answered.
	calls map[string]*call
	// busy has the room of a name for calls that have not ended, which users share. Invariant: none is empty.
	busy map[string]*share.Room[string]
}

// New returns a Broker that nobody listens to yet.
func New[C any](cfg Config) *Broker[C] {
	if cfg.AnswerTimeout <= 0 {
		cfg.AnswerTimeout = 10 * time.Second
	}
	if cfg.MaxCalls <= 0 {
		cfg.MaxCalls = 256
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Broker[C]{
		cfg: cfg, listeners: make(map[string]*listener[C]), calls: make(map[string]*call),
		busy: make(map[string]*share.Room[string]),
	}
}

// call is one request to a component.
type call struct {
	name   string
	user   string                // for whom there is the call
	frames chan frame            // from the answering component, unbuffered: back-pressure
	gone   chan struct{}         // closed when the caller has gone or has everything
	began  chan struct{}         // closed when a component begins to answer
	ended  <-chan struct{}       // closed when the listener that got the call is over
	input  chan *nodev1rpc.Frame // to the answering component, unbuffered; nil unless the call is a conversation
	over   chan struct{}         // closed when the component has ended its answer
}

// frame is what the component sent, or why it sends no more.
type frame struct {
	*nodev1rpc.Frame
	err error
}

// Do asks the component of that name. Ask makes the call with its id. It calls take with each piece of the answer, in
// order, on the caller's goroutine, and returns when the answer ends, ctx ends, or take fails.
// Errors: what the component says (such as NotFound or BadRequest), ServiceUnavailable when it is not connected or
// goes away, Timeout when it does not answer, TooManyRequests.
func (b *Broker[C]) Do(ctx context.Context, name string, ask func(id string) C, take func([]byte) error) error {
	answer := time.NewTimer(b.cfg.AnswerTimeout)
	defer answer.Stop()
	c, id, err := b.open(ctx, name, ask, answer.C, nil)
	if err != nil {
		return err
	}
	defer b.close(c, id)

	select {
	case <-c.began:
	case <-c.ended:
		return apierrors.New(apierrors.ServiceUnavailable, "%s went away", b.cfg.Who(name))
	case <-ctx.Done():
		return ctx.Err()
	case <-answer.C:
		return b.late(name)
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case f := <-c.frames:
			if f.err != nil {
				return b.ended(name, f.err)
			}
			if f.GetError() != "" {
				return apierrors.New(reason(f.GetReason()), "%s", f.GetError())
			}
			if len(f.GetData()) == 0 {
				continue
			}
			if err := take(f.GetData()); err != nil {
				return err
			}
		}
	}
}

// Listening says whether a component of that name listens and whether any does, both at one moment.
func (b *Broker[C]) Listening(name string) (named, anybody bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.listeners[name] != nil, len(b.listeners) > 0
}

// ended says what the end of a component's stream means for the caller.
func (b *Broker[C]) ended(name string, err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return apierrors.New(apierrors.ServiceUnavailable, "%s went away: %v", b.cfg.Who(name), err)
}

// reason maps what a component says to a reason of the API. Components are not trusted to invent reasons.
func reason(said string) apierrors.Reason {
	switch r := apierrors.Reason(said); r {
	case apierrors.BadRequest, apierrors.NotFound, apierrors.Conflict, apierrors.TooManyRequests,
		apierrors.ServiceUnavailable, apierrors.Timeout, apierrors.Invalid, apierrors.MethodNotAllowed:
		return r
	default:
		return apierrors.InternalError
	}
}

func (b *Broker[C]) late(name string) error {
	return apierrors.New(apierrors.Timeout, "%s did not answer within %s", b.cfg.Who(name), b.cfg.AnswerTimeout)
}

// valuesOf is a context that ends with the one and has the values, such as the identity, of the other.
type valuesOf struct {
	context.Context
	other context.Context
}

func (c valuesOf) Value(key any) any { return c.other.Value(key) }

// listener returns who listens for a name and still may.
func (b *Broker[C]) listener(ctx context.Context, name string) (*listener[C], error) {
	b.mu.Lock()
	l := b.listeners[name]
	b.mu.Unlock()
	if l == nil {
		return nil, apierrors.New(apierrors.ServiceUnavailable, "%s is not connected%s", b.cfg.Who(name), b.cfg.Absent)
	}
	if err := b.cfg.MayServe(valuesOf{ctx, l.ctx}, name); err != nil {
		b.cfg.Logger.Warn("a listener may no longer serve its name", "name", name, "error", err)
		return nil, apierrors.New(apierrors.ServiceUnavailable, "%s is not connected", b.cfg.Who(name))
	}
	return l, nil
}

// open registers a call and hands it to the listener, until the time is up: a listener may have ceased to read.
func (b *Broker[C]) open(
	ctx context.Context, name string, ask func(id string) C, timeUp <-chan time.Time, input chan *nodev1rpc.Frame,
) (*call, string, error) {
	id := rand.Text()
	c := &call{
		name: name, user: fair.User(ctx),
		frames: make(chan frame), gone: make(chan struct{}), began: make(chan struct{}),
		input: input, over: make(chan struct{}),
	}
	l, err := b.listener(ctx, name)
	if err != nil {
		return nil, "", err
	}

	b.mu.Lock()
	room := b.busy[name]
	if room == nil {
		room = share.NewRoom[string](b.cfg.MaxCalls)
	}
	if !room.Take(c.user, 1) {
		b.mu.Unlock()
		return nil, "", apierrors.New(apierrors.TooManyRequests,
			"%s serves as many calls already as there may be, %d, or as many as user %q may have", b.cfg.Who(name),
			room.Most(), c.user)
	}
	b.busy[name] = room
	c.ended = l.ended
	b.calls[id] = c
	b.mu.Unlock()

	select {
	case l.calls <- ask(id):
		return c, id, nil
	case <-l.ended:
		b.close(c, id)
		return nil, "", apierrors.New(apierrors.ServiceUnavailable, "%s went away", b.cfg.Who(name))
	case <-ctx.Done():
		b.close(c, id)
		return nil, "", ctx.Err()
	case <-timeUp:
		b.close(c, id)
		return nil, "", b.late(name)
	}
}

// close forgets a call and tells the answering component, if any, that the caller has gone.
func (b *Broker[C]) close(c *call, id string) {
	close(c.gone)
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.calls, id)
	room := b.busy[c.name]
	room.Give(c.user, 1)
	if room.Empty() {
		delete(b.busy, c.name)
	}
}
