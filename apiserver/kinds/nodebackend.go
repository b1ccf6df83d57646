package kinds

import (
	"context"
	"hash/maphash"
	"sync"

	"monoplane.dev/apiserver/registry"
	"monoplane.dev/object"
)

// nodeBackend registers one machine at a time under a name. Between the look for pods that are bound to the
// name and the transaction that creates the node, no other registration of that name can come and go, bind a
// pod in between, and leave it to the wrong machine (NODE-7).
type nodeBackend struct {
	*registry.Registry
	seed  maphash.Seed
	locks [64]sync.Mutex
}

func newNodeBackend(r *registry.Registry) *nodeBackend {
	return &nodeBackend{Registry: r, seed: maphash.MakeSeed()}
}

// Create stores a new node.
func (b *nodeBackend) Create(ctx context.Context, namespace string, o object.Object, opts object.WriteOptions) (object.Object, error) {
	lock := &b.locks[maphash.String(b.seed, o.GetMetadata().GetName())%uint64(len(b.locks))]
	lock.Lock()
	defer lock.Unlock()
	return b.Registry.Create(ctx, namespace, o, opts)
}
