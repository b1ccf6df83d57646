package monoplane

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client"
	"monoplane.dev/client/record"
	"monoplane.dev/nodeagent"
)

// member is a node of this cluster with its agent, which can be stopped and started again.
//
//	            stop: the agent ends as if its process had died; its pods go on
//	working ─────────────────────────────────────────────────────────────────────▶ silent
//	working ◀───────────────────────────────────────────────────────────────────── silent
//	            start: another agent begins, and adopts the pods that are there
type member struct {
	name string
	// number is the node's among those of the cluster.
	number  int
	runtime grpc.ClientConnInterface
	api     *client.Client
	// recorder records the events of the node.
	recorder *record.Recorder

	// settled: the node was ready, and took pods, since this cluster has started.
	settled atomic.Bool
	// turn is held while the agent is stopped or started.
	turn chan struct{}
	// wake is sent to when a silent member is to work again.
	wake chan struct{}

	mu     sync.Mutex
	agent  *nodeagent.Agent
	silent bool
	// working is the context of the agent, cancel ends it; ended is closed when the agent has.
	working context.Context
	cancel  context.CancelFunc
	ended   chan struct{}
}

// begin sets the agent that works from now on.
func (m *member) begin(ctx context.Context, a *nodeagent.Agent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.agent, m.silent, m.ended = a, false, make(chan struct{})
	m.working, m.cancel = context.WithCancel(ctx)
}

// current returns the agent, and whether it is silent: then it does nothing.
func (m *member) current() (a *nodeagent.Agent, silent bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.agent, m.silent
}

// run works until ctx ends, or an agent ends without having been asked to.
func (m *member) run(ctx context.Context) error {
	for {
		m.mu.Lock()
		a, working, ended := m.agent, m.working, m.ended
		m.mu.Unlock()
		err := a.Run(working)
		close(ended)
		if _, silent := m.current(); !silent || ctx.Err() != nil {
			return err
		}
		select {
		case <-m.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// take waits for the turn to stop or start the agent, and returns what gives it back.
func (m *member) take(ctx context.Context) (release func(), err error) {
	select {
	case m.turn <- struct{}{}:
		return func() { <-m.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// stop ends the agent, and reports whether it worked.
func (m *member) stop(ctx context.Context) (bool, error) {
	release, err := m.take(ctx)
	if err != nil {
		return false, err
	}
	defer release()
	m.mu.Lock()
	was, ended := !m.silent, m.ended
	m.silent = true
	m.cancel()
	m.mu.Unlock()
	select {
	case <-ended:
		return was, nil
	case <-ctx.Done():
		return was, ctx.Err()
	}
}

// start begins with an agent that create returns, and reports whether there was none that worked. It waits until the
// agent is ready.
func (m *member) start(
	ctx, running context.Context, create func(*member) (*nodeagent.Agent, error),
) (started bool, err error) {
	release, err := m.take(ctx)
	if err != nil {
		return false, err
	}
	defer release()
	a, silent := m.current()
	if silent {
		select {
		case <-m.end(): // who stopped it may not have waited
		case <-ctx.Done():
			return false, ctx.Err()
		}
		if a, err = create(m); err != nil {
			return false, err
		}
		m.begin(running, a)
		m.wake <- struct{}{}
	}
	select {
	case <-a.Ready():
		return silent, nil
	case <-m.end():
		return silent, errors.New("the agent has ended")
	case <-ctx.Done():
		return silent, ctx.Err()
	}
}

// end returns what is closed when the agent has ended.
func (m *member) end() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ended
}

// member returns the node of a name, if this cluster runs its agent.
func (c *Cluster) member(name string) (*member, error) {
	select {
	case <-c.emptying.begun:
		return nil, apierrors.New(apierrors.ServiceUnavailable, "the server is stopping, with the agents of its nodes")
	default:
	}
	i := slices.IndexFunc(c.members, func(m *member) bool { return m.name == name })
	if i >= 0 {
		return c.members[i], nil
	}
	var names []string
	for _, m := range c.members {
		names = append(names, m.name)
	}
	const few = 5
	if len(names) > few {
		names = append(names[:few:few], "...")
	}
	return nil, apierrors.New(apierrors.NotFound, "no agent of a node %q runs in this server, but those of: %s", name,
		strings.Join(names, ", "))
}

// StopNode ends the agent of a node as if its process had died: it falls silent at once, and its pods go on without
// it. It returns when the agent has ended, and whether it worked until then. Meanwhile the cluster is as ready as it
// is without the node.
func (c *Cluster) StopNode(ctx context.Context, name string) (stopped bool, err error) {
	m, err := c.member(name)
	if err != nil {
		return false, err
	}
	return m.stop(ctx)
}

// StartNode starts the agent of a node that StopNode ended. It returns when the agent has adopted the pods that are
// there and is ready, and whether it was stopped until then.
func (c *Cluster) StartNode(ctx context.Context, name string) (started bool, err error) {
	m, err := c.member(name)
	if err != nil {
		return false, err
	}
	return m.start(ctx, c.running, c.newAgent)
}

// agentOf returns the agent of a node whose Node object has changed; nil for none that works.
func agentOf(members map[string]*member, n *corev1.Node) *nodeagent.Agent {
	m := members[n.GetMetadata().GetName()]
	if m == nil {
		return nil
	}
	if a, silent := m.current(); !silent {
		return a
	}
	return nil
}
