package nodestreams

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	nodev1 "monoplane.dev/api/node/v1"
	"monoplane.dev/apierrors"
)

// Config says how a Broker behaves. The zero value is usable.
type Config struct {
	// AnswerTimeout is how long an agent may take to begin its answer; 10 s when zero.
	AnswerTimeout time.Duration
	// MaxCalls is how many calls one node may serve at a time; 256 when zero. More are refused.
	MaxCalls int
	// Logger gets one line when an agent begins or ceases to listen; discarded when nil.
	Logger *slog.Logger
}

// Broker brings callers and agents together. It implements nodev1.NodeStreamsServer. Use New.
type Broker struct {
	nodev1.UnimplementedNodeStreamsServer

	cfg Config

	mu sync.Mutex
	// Invariant: at most one listener per node, the newest.
	listeners map[string]*listener
	// calls holds the calls that no agent has begun to answer. Invariant: an id leaves when it is answered.
	calls map[string]*call
	// busy counts the calls of a node that have not ended. Invariant: no zero entries.
	busy map[string]int
}

// New returns a Broker that nobody listens to yet.
func New(cfg Config) *Broker {
	if cfg.AnswerTimeout <= 0 {
		cfg.AnswerTimeout = 10 * time.Second
	}
	if cfg.MaxCalls <= 0 {
		cfg.MaxCalls = 256
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Broker{
		cfg: cfg, listeners: make(map[string]*listener), calls: make(map[string]*call), busy: make(map[string]int),
	}
}

// call is one request to an agent.
type call struct {
	node   string
	frames chan frame    // from the answering agent, unbuffered: back-pressure
	gone   chan struct{} // closed when the caller has gone or has everything
	began  chan struct{} // closed when an agent begins to answer
}

// frame is what the agent sent, or why it sends no more.
type frame struct {
	*nodev1.Frame
	err error
}

// Logs streams a container's log from the agent of node, which must hold the pod. It calls send with each
// piece, in order, on the caller's goroutine, and returns when the log ends, ctx ends, or send fails.
// Errors: what the agent says (such as NotFound or BadRequest), ServiceUnavailable when the agent is not
// connected or goes away, Timeout when it does not answer, TooManyRequests. spec: CTR-8
func (b *Broker) Logs(ctx context.Context, node string, ask *nodev1.LogCall, send func([]byte) error) error {
	c, id, err := b.open(ctx, node, &nodev1.Call{Request: &nodev1.Call_Log{Log: ask}})
	if err != nil {
		return err
	}
	defer b.close(c, id)

	answer := time.NewTimer(b.cfg.AnswerTimeout)
	defer answer.Stop()
	select {
	case <-c.began:
	case <-ctx.Done():
		return ctx.Err()
	case <-answer.C:
		return apierrors.New(apierrors.Timeout, "the agent of node %q did not answer within %s", node, b.cfg.AnswerTimeout)
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case f := <-c.frames:
			if f.err != nil {
				return ended(node, f.err)
			}
			if f.GetError() != "" {
				return apierrors.New(reason(f.GetReason()), "%s", f.GetError())
			}
			if len(f.GetData()) == 0 {
				continue
			}
			if err := send(f.GetData()); err != nil {
				return err
			}
		}
	}
}

// ended says what the end of an agent's stream means for the caller.
func ended(node string, err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return apierrors.New(apierrors.ServiceUnavailable, "the agent of node %q went away: %v", node, err)
}

// reason maps what an agent says to a reason of the API. Agents are not trusted to invent reasons.
func reason(said string) apierrors.Reason {
	switch r := apierrors.Reason(said); r {
	case apierrors.BadRequest, apierrors.NotFound, apierrors.Conflict, apierrors.TooManyRequests,
		apierrors.ServiceUnavailable, apierrors.Timeout, apierrors.Invalid, apierrors.MethodNotAllowed:
		return r
	default:
		return apierrors.InternalError
	}
}

// open registers a call and hands it to the node's listener.
func (b *Broker) open(ctx context.Context, node string, msg *nodev1.Call) (*call, string, error) {
	id := rand.Text()
	msg.Id = id
	c := &call{node: node, frames: make(chan frame), gone: make(chan struct{}), began: make(chan struct{})}

	b.mu.Lock()
	l := b.listeners[node]
	if l == nil {
		b.mu.Unlock()
		return nil, "", apierrors.New(apierrors.ServiceUnavailable, "the agent of node %q is not connected (simulated nodes serve no logs)", node)
	}
	if b.busy[node] >= b.cfg.MaxCalls {
		b.mu.Unlock()
		return nil, "", apierrors.New(apierrors.TooManyRequests, "node %q serves %d streams already", node, b.cfg.MaxCalls)
	}
	b.calls[id] = c
	b.busy[node]++
	b.mu.Unlock()

	select {
	case l.calls <- msg:
		return c, id, nil
	case <-l.ended:
		b.close(c, id)
		return nil, "", apierrors.New(apierrors.ServiceUnavailable, "the agent of node %q went away", node)
	case <-ctx.Done():
		b.close(c, id)
		return nil, "", ctx.Err()
	}
}

// close forgets a call and tells the answering agent, if any, that the caller has gone.
func (b *Broker) close(c *call, id string) {
	close(c.gone)
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.calls, id)
	if b.busy[c.node]--; b.busy[c.node] <= 0 {
		delete(b.busy, c.node)
	}
}
