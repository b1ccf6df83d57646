package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	coordinationv1 "monoplane.dev/api/coordination/v1"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/codec/value"
)

// leaseNamespace holds the Leases of all nodes.
const leaseNamespace = "kube-node-lease"

// pulse renews the Lease and, when it is time or something has changed, the node's status. A node that has vanished
// is registered again at once. Between two beats it is only a timer. spec: NODE-1, NODE-7
type pulse struct {
	agent *Agent
	ctx   context.Context
	// fail ends the agent's work; it is told ErrRefused when the API does not accept the node.
	fail func(error)

	mu      sync.Mutex // held during a beat
	timer   *time.Timer
	next    time.Time
	written time.Time // when the status was
	// imagesDue: the images are to be reported after the next beat; unlisted: the runtime did not list them last time.
	imagesDue, unlisted bool
}

// startPulse begins the heartbeats. They end with ctx; stop waits for the last.
func (a *Agent) startPulse(ctx context.Context, fail func(error)) *pulse {
	// The agents of one process would all beat at the same instant.
	offset := time.Duration(print(a.cfg.NodeName, 0) % uint64(a.cfg.HeartbeatInterval))
	p := &pulse{agent: a, ctx: ctx, fail: fail, next: now().Add(offset), written: now(), imagesDue: true}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(offset, p.beat)
	return p
}

func (p *pulse) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return
	}
	a := p.agent
	wrote, err := a.heartbeat(p.ctx, now().Sub(p.written) >= a.cfg.StatusInterval)
	switch {
	case p.ctx.Err() != nil:
		return
	case errors.Is(err, ErrRefused):
		p.fail(err)
		return
	case err != nil:
		a.cfg.Logger.Warn("heartbeat failed", "error", err)
	case wrote:
		p.written, p.imagesDue = now(), true
	}
	if err == nil && p.imagesDue {
		p.reportImages()
	}
	for p.next = p.next.Add(a.cfg.HeartbeatInterval); p.next.Before(now()); {
		p.next = p.next.Add(a.cfg.HeartbeatInterval) // a late beat does not make the next ones late
	}
	p.timer.Reset(p.next.Sub(now()))
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
	p.timer.Stop()
}

// heartbeat beats once and registers the node again if it has vanished. It returns whether the status was written.
func (a *Agent) heartbeat(ctx context.Context, due bool) (wrote bool, err error) {
	beat, cancel := context.WithTimeout(ctx, a.cfg.HeartbeatInterval)
	defer cancel()
	wrote, err = a.beat(beat, due)
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case apierrors.Is(err, apierrors.NotFound):
		a.cfg.Logger.Warn("the node has vanished; registering it again")
		err := a.register(ctx)
		return err == nil, err
	case apierrors.Is(err, apierrors.Conflict):
		// Somebody else wrote at the same time; the next beat reads anew.
		a.cfg.Logger.Debug("heartbeat lost a race", "error", err)
		return false, nil
	}
	return wrote, err
}

// beat is one heartbeat. It returns NotFound when the Node object does not exist.
func (a *Agent) beat(ctx context.Context, due bool) (wrote bool, err error) {
	if err := a.renewLease(ctx); err != nil {
		return false, fmt.Errorf("lease: %w", err)
	}
	a.askRuntime(ctx)
	node, err := a.cfg.Client.Nodes.Get(ctx, &metav1.GetRequest{Name: a.cfg.NodeName, ResourceVersion: "0"})
	if err != nil {
		return false, err
	}
	if node, err = a.keepLabels(ctx, node); err != nil {
		return false, fmt.Errorf("labels: %w", err)
	}
	if !due && !a.conditionsChanged(node) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.node = node
		return false, nil
	}
	err = a.writeNodeStatus(ctx, node)
	return err == nil, err
}

// conditionsChanged reports whether the status of a condition is no longer what the API has.
func (a *Agent) conditionsChanged(node *corev1.Node) bool {
	have := make(map[string]string)
	for _, c := range node.GetStatus().GetConditions() {
		have[c.GetType()] = c.GetStatus()
	}
	var want corev1.NodeStatus
	a.nodeConditions(&want)
	for _, c := range want.GetConditions() {
		if have[c.GetType()] != c.GetStatus() {
			return true
		}
	}
	return false
}

// renewLease writes the time into the node's Lease, which it makes if need be.
func (a *Agent) renewLease(ctx context.Context) error {
	a.mu.Lock()
	last := a.lease
	a.mu.Unlock()
	var err error
	if last == nil {
		last, err = a.cfg.Client.Leases.Get(ctx, &metav1.GetRequest{Namespace: leaseNamespace, Name: a.cfg.NodeName})
		if apierrors.Is(err, apierrors.NotFound) {
			last, err = a.cfg.Client.Leases.Create(ctx, &coordinationv1.CreateLeaseRequest{
				Namespace: leaseNamespace, Object: a.leaseNow(nil),
			})
			return a.keepLease(last, err)
		}
		if err != nil {
			return err
		}
	}
	last, err = a.cfg.Client.Leases.Update(ctx, &coordinationv1.UpdateLeaseRequest{
		Namespace: leaseNamespace, Name: a.cfg.NodeName, Object: a.leaseNow(last),
	})
	return a.keepLease(last, err)
}

// keepLease remembers the Lease for the next renewal; after an error it is read again.
func (a *Agent) keepLease(l *coordinationv1.Lease, err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lease = l; err != nil {
		a.lease = nil
		if apierrors.Is(err, apierrors.NotFound) {
			// It was deleted between two renewals; NotFound of the heartbeat means the Node.
			return apierrors.New(apierrors.Conflict, "the lease was deleted")
		}
	}
	return err
}

func (a *Agent) leaseNow(last *coordinationv1.Lease) *coordinationv1.Lease {
	l := &coordinationv1.Lease{
		Metadata: &metav1.ObjectMeta{Namespace: leaseNamespace, Name: a.cfg.NodeName},
		Spec: &coordinationv1.LeaseSpec{
			HolderIdentity:       proto.String(a.cfg.NodeName),
			LeaseDurationSeconds: proto.Int32(int32(a.cfg.LeaseDuration / time.Second)),
			RenewTime:            value.MicroTime(now()),
		},
	}
	if last != nil {
		l.Metadata = last.GetMetadata()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.node != nil {
		// The Lease goes when the Node goes.
		l.Metadata.OwnerReferences = []*metav1.OwnerReference{{
			ApiVersion: "v1", Kind: "Node", Name: a.cfg.NodeName, Uid: a.node.GetMetadata().GetUid(),
		}}
	}
	return l
}
