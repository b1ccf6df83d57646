package nodeagent

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	coordinationv1 "monoplane.dev/api/coordination/v1"
	coordinationv1rpc "monoplane.dev/api/coordination/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/codec/value"
	"monoplane.dev/object/builtin"
)

// leaseNamespace holds the Leases of all nodes.
const leaseNamespace = builtin.NodeLeases

// renewLease writes the time into the node's Lease, which it makes if need be. It takes a third of the time between
// two beats at most.
func (a *Agent) renewLease(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.HeartbeatInterval/3)
	defer cancel()
	return a.holdingLease(ctx, func() error { return a.writeLease(ctx) })
}

// holdingLease calls f while nothing else of the agent writes the Lease: the first beat may come before the node is
// ready, and two writes at a time would be in each other's way.
func (a *Agent) holdingLease(ctx context.Context, f func() error) error {
	select {
	case a.leasing <- struct{}{}:
		defer func() { <-a.leasing }()
		return f()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leaseTries is how often a beat tries to write a Lease that has changed since it was read. An earlier write of this
// agent, given up without an answer, may still be carried out, and so change it between a read and a write, once.
const leaseTries = 3

func (a *Agent) writeLease(ctx context.Context) error {
	a.mu.Lock()
	last := a.lease
	a.lease = nil // to be read again, unless all goes well
	a.mu.Unlock()
	next, err := a.putLease(ctx, last)
	for tries := 1; tries < leaseTries && changedMeanwhile(err); tries++ {
		next, err = a.putLease(ctx, nil)
	}
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lease = next
	return nil
}

// changedMeanwhile reports whether the Lease was made, written or deleted since it was read.
func changedMeanwhile(err error) bool {
	return apierrors.Is(err, apierrors.AlreadyExists) || apierrors.Is(err, apierrors.Conflict) ||
		apierrors.Is(err, apierrors.NotFound)
}

// firstLeaseTimeout is how long a node that is ready otherwise waits for its Lease.
const firstLeaseTimeout = 500 * time.Millisecond

// firstLease writes the Lease before the node is called ready, so that who sees the node finds its Lease too, unless a
// beat already has. One that cannot be written is left to the heartbeats, which tell.
func (a *Agent) firstLease(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstLeaseTimeout)
	defer cancel()
	err := a.holdingLease(ctx, func() error {
		a.mu.Lock()
		written := a.lease != nil
		a.mu.Unlock()
		if written {
			return nil
		}
		return a.writeLease(ctx)
	})
	if err != nil {
		a.cfg.Logger.Debug("the node's first lease cannot be written", "error", err)
	}
}

// putLease renews the Lease as it was last seen; nil for one that is to be read.
func (a *Agent) putLease(ctx context.Context, last *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	var err error
	if last == nil {
		last, err = a.cfg.Client.Leases.Get(ctx, &metav1.GetRequest{Namespace: leaseNamespace, Name: a.cfg.NodeName})
		if apierrors.Is(err, apierrors.NotFound) {
			return a.cfg.Client.Leases.Create(ctx, &coordinationv1rpc.CreateLeaseRequest{
				Namespace: leaseNamespace, Object: a.leaseNow(nil),
			})
		}
		if err != nil {
			return nil, err
		}
	}
	return a.cfg.Client.Leases.Update(ctx, &coordinationv1rpc.UpdateLeaseRequest{
		Namespace: leaseNamespace, Name: a.cfg.NodeName, Object: a.leaseNow(last),
	})
}

func (a *Agent) leaseNow(last *coordinationv1.Lease) *coordinationv1.Lease {
	l := &coordinationv1.Lease{
		Metadata: &metav1.ObjectMeta{Namespace: leaseNamespace, Name: a.cfg.NodeName},
		Spec: &coordinationv1.LeaseSpec{
			HolderIdentity:       proto.String(a.cfg.NodeName),
			LeaseDurationSeconds: proto.Int32(max(1, int32(a.cfg.LeaseDuration/time.Second))),
			RenewTime:            value.MicroTime(now()),
		},
	}
	if last != nil {
		l.Metadata = last.GetMetadata().Clone()
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
