package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/cache"
)

// pulse renews the Lease, looks at the Node and, when it is time or something has changed, writes the node's status. A
// node that has vanished is registered again at once. Between two beats it is only a timer. spec: NODE-1, NODE-7
type pulse struct {
	agent *Agent
	ctx   context.Context
	// fail ends the agent's work; it is told ErrRefused when the API does not accept the node.
	fail func(error)

	mu      sync.Mutex // held during a beat
	next    time.Time
	written time.Time // when the status was
	// lease and node say what has failed since when, so that it is not logged with every beat.
	lease, node trouble
	// imagesDue: the images are to be reported after the next beat; unlisted: the runtime did not list them last time.
	imagesDue, unlisted bool

	timing sync.Mutex // guards what follows
	timer  *time.Timer
	// beating: the timer has fired and is not set again yet; soon: hurry was called meanwhile.
	beating, soon bool
}

// startPulse begins the heartbeats. They end with ctx; stop waits for the last.
func (a *Agent) startPulse(ctx context.Context, fail func(error)) *pulse {
	// The agents of one process would all beat at the same instant.
	spread := fnv.New64a()
	_, _ = io.WriteString(spread, a.cfg.NodeName) // it never fails
	offset := time.Duration(spread.Sum64() % uint64(a.cfg.HeartbeatInterval))
	p := &pulse{agent: a, ctx: ctx, fail: fail, next: now().Add(offset), written: now(), imagesDue: true}
	p.lease = trouble{what: "the node's lease cannot be renewed", log: a.cfg.Logger}
	p.node = trouble{what: "heartbeat failed", log: a.cfg.Logger}
	p.timing.Lock()
	p.timer = time.AfterFunc(offset, p.beat)
	p.timing.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.beats = p
	return p
}

// hurry makes the next beat come at once, or, during a beat, right after it. It does not wait.
func (p *pulse) hurry() {
	p.timing.Lock()
	defer p.timing.Unlock()
	if p.beating {
		p.soon = true
		return
	}
	p.timer.Reset(0)
}

func (p *pulse) beat() {
	p.timing.Lock()
	p.beating, p.soon = true, false
	p.timing.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil || !p.beatOnce() {
		return
	}
	for !p.next.After(now()) {
		p.next = p.next.Add(p.agent.cfg.HeartbeatInterval) // a late beat does not make the next ones late
	}
	p.timing.Lock()
	defer p.timing.Unlock()
	wait := p.next.Sub(now())
	if p.soon {
		wait = 0
	}
	p.beating = false
	p.timer.Reset(wait)
}

// beatOnce reports whether there is to be another beat.
func (p *pulse) beatOnce() bool {
	a := p.agent
	wrote, leaseErr, err := a.heartbeat(p.ctx, now().Sub(p.written) >= a.cfg.StatusInterval)
	switch {
	case p.ctx.Err() != nil:
		return false
	case errors.Is(err, ErrRefused):
		p.fail(err)
		return false
	case apierrors.Is(err, apierrors.Conflict):
		// Somebody else wrote at the same time; the next beat reads anew.
		a.cfg.Logger.Debug("heartbeat lost a race", "error", err)
		err = nil
	case wrote:
		p.written, p.imagesDue = now(), true
	}
	p.lease.tell(leaseErr)
	p.node.tell(err)
	if err == nil && p.imagesDue {
		p.reportImages()
	}
	return true
}

// trouble tells the log of something that fails again and again: when it begins, once a minute while it lasts, and
// when it is over.
type trouble struct {
	what string
	log  *slog.Logger
	said time.Time // zero while all is well
}

// troubleEvery is the least time between two lines about one trouble.
const troubleEvery = time.Minute

func (t *trouble) tell(err error) {
	switch {
	case err != nil && (t.said.IsZero() || now().Sub(t.said) >= troubleEvery):
		t.log.Warn(t.what, "error", err)
		t.said = now()
	case err == nil && !t.said.IsZero():
		t.log.Warn(t.what + ": that is over")
		t.said = time.Time{}
	}
}

// reportImages reports the node's images. It comes after a beat, so that a runtime that does not list them holds up
// neither the beat nor the node's registration; what was reported before stays then. spec: NODE-1
func (p *pulse) reportImages() {
	a := p.agent
	ctx, cancel := context.WithTimeout(p.ctx, a.cfg.HeartbeatInterval)
	defer cancel()
	images, err := a.listImages(ctx)
	switch {
	case p.ctx.Err() != nil:
		return
	case err == nil:
		err = a.writeImages(ctx, images)
		p.imagesDue, p.unlisted = err != nil, false // after a lost race, say, the next beat tries again
		if err != nil {
			a.cfg.Logger.Debug("the node's images cannot be reported", "error", err)
		}
		return
	case !p.unlisted:
		a.cfg.Logger.Warn("the container runtime does not list its images", "error", err) // once, not every time
	}
	p.imagesDue, p.unlisted = false, true // the next report of the status tries again
}

// stop returns when no beat is under way. The context has ended before.
func (p *pulse) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timing.Lock()
	defer p.timing.Unlock()
	p.beating = true // for good: hurry sets no timer any more
	p.timer.Stop()
}

// LookAtNode makes the agent look at its Node object at once rather than with the next heartbeat, because it may have
// been deleted. It does not wait. spec: NODE-7
func (a *Agent) LookAtNode() {
	a.mu.Lock()
	p := a.beats
	a.mu.Unlock()
	if p != nil {
		p.hurry()
	}
}

// watchNode looks at the Node when it is deleted, and when it is given the ranges of its pods' addresses. spec:
// NODE-7, NET-1
func (a *Agent) watchNode(ctx context.Context) error {
	nodes := cache.New(cache.Config[*corev1.Node]{
		Source:        cache.Watch(a.cfg.Client.Nodes.Watch),
		FieldSelector: "metadata.name=" + a.cfg.NodeName,
		Logger:        a.cfg.Logger,
	})
	nodes.AddHandler(cache.Handler[*corev1.Node]{
		OnAdd: func(now *corev1.Node) {
			if len(now.GetSpec().GetPodCIDRs()) > 0 {
				a.LookAtNode()
			}
		},
		OnUpdate: func(before, now *corev1.Node) {
			if !slices.Equal(before.GetSpec().GetPodCIDRs(), now.GetSpec().GetPodCIDRs()) {
				a.LookAtNode()
			}
		},
		OnDelete: func(*corev1.Node) { a.LookAtNode() },
	})
	return nodes.Run(ctx)
}

// heartbeat beats once: it looks at the Node, registers it again if it has vanished, renews the Lease, and writes the
// status of the node if it is due or differs. What becomes of the Lease has no influence on the rest: its namespace
// may be gone. It returns whether the status was written, and what went wrong.
func (a *Agent) heartbeat(ctx context.Context, due bool) (wrote bool, leaseErr, err error) {
	node, err := a.lookAtNode(ctx)
	if apierrors.Is(err, apierrors.NotFound) {
		a.cfg.Logger.Warn("the node has vanished; registering it again")
		if err = a.register(ctx); err != nil {
			return false, nil, err
		}
		node, wrote = a.nodeNow(), true
	}
	leaseErr = a.renewLease(ctx)
	beat, cancel := context.WithTimeout(ctx, a.cfg.HeartbeatInterval)
	defer cancel()
	if err != nil || wrote {
		return wrote, leaseErr, err
	}
	a.tellRanges(beat, node)
	a.askRuntime(beat)
	if node, err = a.keepLabels(beat, node); err != nil {
		return false, leaseErr, fmt.Errorf("labels: %w", err)
	}
	a.followAddresses()
	if !due && !a.conditionsChanged(node) && !a.addressesChanged(node) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.node = node
		return false, leaseErr, nil
	}
	err = a.writeNodeStatus(beat, node)
	return err == nil, leaseErr, err
}

// lookAtNode reads the Node as the API server has it in memory.
func (a *Agent) lookAtNode(ctx context.Context) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	return a.cfg.Client.Nodes.Get(ctx, &metav1.GetRequest{Name: a.cfg.NodeName, ResourceVersion: "0"})
}

// conditionsChanged reports whether the status of a condition is no longer what the API has.
func (a *Agent) conditionsChanged(node *corev1.Node) bool {
	want := corev1.NodeStatus{}
	if c := nodeCondition(node.GetStatus(), condKillFailed); c != nil {
		want.Conditions = append(want.Conditions, c.Clone())
	}
	a.nodeConditions(&want)
	for _, c := range want.GetConditions() {
		have := nodeCondition(node.GetStatus(), c.GetType())
		// Which pods are stuck is in the message.
		if have.GetStatus() != c.GetStatus() || c.GetType() == condKillFailed && have.GetMessage() != c.GetMessage() {
			return true
		}
	}
	return false
}
