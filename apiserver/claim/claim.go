// Package claim finds out, when a server starts, which of its node names belong to this machine (spec: NODE-7), and
// takes over those that it may. A name is another machine's when the data directory is a copy, or was restored from a
// snapshot (spec: SAFE-5), or when two machines use one etcd with the same name; the pods of that machine may still
// run, so that nothing is started or stopped under the name here.
package claim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/auth"
	"monoplane.dev/apiserver/kinds/core/nodekey"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/internal/datadir"
	"monoplane.dev/internal/machinekey"
)

// Config says who asks for which names.
type Config struct {
	Store *store.Store
	// Dir keeps Key, which is the machine's. Fresh says that it was made in this start.
	Dir   *datadir.Dir
	Key   machinekey.Key
	Fresh bool
	// Nodes are the names.
	Nodes []string
	// Simulated says that the nodes run nothing real, Shared that other servers may use the same etcd.
	Simulated, Shared bool
	// OriginalDead says that an operator has confirmed that no other machine runs pods of these names.
	OriginalDead bool
	Logger       *slog.Logger
}

// Refusal says why a name is not this machine's.
type Refusal struct {
	Node, Why string
}

// errNothingToConfirm is the answer to OriginalDead where no other machine is in the way. A confirmation that stays in
// a script would be one for every copy that is made of the directory later.
var errNothingToConfirm = errors.New(
	"there is no other machine whose death could be confirmed: the node names of this data " +
		"directory are its own; start without the confirmation")

// Names claims the names. It returns the machine's key, which changes when pods are taken over, and the names that are
// refused.
func Names(ctx context.Context, cfg Config) (machinekey.Key, []Refusal, error) {
	key := cfg.Key
	claims, err := nodekey.Claims(ctx, cfg.Store, cfg.Nodes, key.Value)
	if err != nil {
		return key, nil, err
	}
	if cfg.OriginalDead && len(claims) == 0 && !cfg.Fresh {
		return key, nil, errNothingToConfirm
	}
	var refused []Refusal
	confirmed := cfg.OriginalDead || key.OriginalDead
	for _, claim := range claims {
		// A copy of simulated nodes can run beside the original: there is nothing to run twice, and the store is its own.
		simulated := claim.Simulated && cfg.Simulated && !cfg.Shared
		if !confirmed && !simulated {
			r := Refusal{Node: claim.Node, Why: cfg.why()}
			cfg.Logger.Warn("a node is refused; nothing is started or stopped on it", "node", r.Node, "reason", r.Why)
			refused = append(refused, r)
			continue
		}
		cfg.Logger.Info("taking a node over from another machine", "node", claim.Node, "confirmed", confirmed)
		if err := claim.Adopt(ctx, cfg.Store, key.Value); err != nil {
			return key, nil, fmt.Errorf("take over node %s: %w", claim.Node, err)
		}
		if confirmed {
			auth.NewAudit(cfg.Logger).BreakGlass(ctx, "", "confirm-original-dead", claim.Node, "")
		}
		if !simulated {
			key.Owner = claim.Key // what still runs in a runtime that others use is marked with it
		}
	}
	if key.OriginalDead || key.Owner != cfg.Key.Owner {
		key.OriginalDead = false
		if key, err = machinekey.Save(cfg.Dir, key); err != nil {
			return key, nil, err
		}
	}
	return key, refused, nil
}

// why says how a name came to be another machine's.
func (cfg Config) why() string {
	switch {
	case cfg.Key.Copied != "":
		return cfg.Key.Copied
	case cfg.Shared:
		return "another machine uses the same etcd with the same node name"
	default:
		return "it was restored from a snapshot, or its " + machinekey.Name + " was removed"
	}
}

// Machine returns the key of the machine that a node is registered for, and whether the node is registered.
func Machine(ctx context.Context, s *store.Store, node string) (key string, registered bool, err error) {
	n, err := s.Get(ctx, store.Key{Kind: corev1.NodeKind, Name: node}, "")
	if apierrors.Is(err, apierrors.NotFound) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	return nodekey.Of(n.GetMetadata()), true, nil
}
