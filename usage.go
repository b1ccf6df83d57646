package monoplane

import (
	"context"
	"sync"

	nodev1rpc "monoplane.dev/api/node/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/kinds/define"
)

// usages says what nodes and their pods use. Agents of simulated nodes listen for no calls, since a thousand of them
// would keep a thousand streams open: they are asked where they are, in this process. The others are asked over their
// streams.
type usages struct {
	streams define.UsageSource

	mu sync.Mutex
	// simulated are the simulated nodes, by name.
	simulated map[string]*member
}

// add makes it known that a node is simulated.
func (u *usages) add(m *member) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.simulated == nil {
		u.simulated = make(map[string]*member)
	}
	u.simulated[m.name] = m
}

// Usage implements define.UsageSource.
func (u *usages) Usage(ctx context.Context, node string) (*nodev1rpc.UsageReport, error) {
	u.mu.Lock()
	m := u.simulated[node]
	u.mu.Unlock()
	if m == nil {
		return u.streams.Usage(ctx, node)
	}
	a, silent := m.current()
	if silent {
		return nil, apierrors.New(apierrors.ServiceUnavailable, "the agent of node %q is stopped", node)
	}
	return a.Usage(ctx)
}
