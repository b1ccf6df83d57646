package monoplane

import (
	"context"
	"errors"
	"fmt"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/kinds/core/nodekey"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/datadir"
	"monoplane.dev/machinekey"

	corev1 "monoplane.dev/api/core/v1"
)

// ErrNodeRefused means that a node of this cluster belongs to another machine's key (spec: NODE-7): the data directory
// is a copy, or was restored from a snapshot, and the pods may still run where the data come from (spec: SAFE-5). The
// API serves; nothing is started or stopped on that node.
var ErrNodeRefused = errors.New("it belongs to another machine")

// errNothingToConfirm is the answer to ConfirmOriginalDead where no other machine is in the way. A confirmation that
// stays in a script would be one for every copy that is made of the directory later.
var errNothingToConfirm = errors.New("there is no other machine whose death could be confirmed: the node names of this data " +
	"directory are its own; start without the confirmation")

// identify finds out which machine this is. A copy forgets how the original was reached.
func (c *Cluster) identify(p *parts) (err error) {
	if p.machine, p.newMachine, err = machinekey.Ensure(c.dir); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if p.newMachine || !c.sockets.Any() {
		return c.dir.Remove(datadir.Kubeconfig)
	}
	return nil
}

// claim finds out which of the node names are this machine's, and takes over those that it may.
func (c *Cluster) claim(ctx context.Context, p *parts) error {
	key := p.machine
	claims, err := nodekey.Claims(ctx, c.store, c.cfg.nodeNames(), key.Value)
	if err != nil {
		return err
	}
	if c.cfg.ConfirmOriginalDead && len(claims) == 0 && !p.newMachine {
		return errNothingToConfirm
	}
	confirmed := c.cfg.ConfirmOriginalDead || key.OriginalDead
	for _, claim := range claims {
		// A copy of simulated nodes can run beside the original: there is nothing to run twice, and the store is its own.
		simulated := claim.Simulated && c.cfg.Runtime.Simulated() && len(c.cfg.EtcdEndpoints) == 0
		if !confirmed && !simulated {
			c.refuse(claim.Node, key)
			continue
		}
		c.cfg.Logger.Info("taking a node over from another machine", "node", claim.Node, "confirmed", confirmed)
		if err := claim.Adopt(ctx, c.store, key.Value); err != nil {
			return fmt.Errorf("take over node %s: %w", claim.Node, err)
		}
		if !simulated {
			key.Owner = claim.Key // what still runs in a runtime that others use is marked with it
		}
	}
	if key.OriginalDead || key.Owner != p.machine.Owner {
		key.OriginalDead = false
		if p.machine, err = machinekey.Save(c.dir, key); err != nil {
			return err
		}
	}
	return nil
}

// refuse notes that a node is not this machine's.
func (c *Cluster) refuse(node string, key machinekey.Key) {
	why := key.Copied
	switch {
	case why != "":
	case len(c.cfg.EtcdEndpoints) > 0:
		why = "another machine uses the same etcd with the same node name"
	default:
		why = "it was restored from a snapshot, or its " + machinekey.Name + " was removed"
	}
	c.refused = append(c.refused, fmt.Errorf("node %s is refused: %w, whose pods may still run; of the data directory %s: %s",
		node, ErrNodeRefused, c.cfg.DataDir, why))
	c.refusedNodes = append(c.refusedNodes, node)
	c.cfg.Logger.Warn("a node is refused; nothing is started or stopped on it", "node", node, "reason", why)
}

// machineOf returns the key of the machine that a node is registered for, and whether the node is registered.
func (c *Cluster) machineOf(ctx context.Context, name string) (key string, registered bool, err error) {
	node, err := c.store.Get(ctx, store.Key{Kind: corev1.NodeKind, Name: name}, "")
	if apierrors.Is(err, apierrors.NotFound) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	return nodekey.Of(node.GetMetadata()), true, nil
}
