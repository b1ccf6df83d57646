package embedded

import (
	"context"

	"monoplane.dev/internal/pages"
)

// ReleasePages lets go of the memory in which this process sees the database: etcd maps the whole file in advance and
// seldom looks at most of it. What is needed again comes back from the system's page cache, which may drop it under
// pressure.
func (e *Embedded) ReleasePages(ctx context.Context) error {
	return e.pinned(ctx, func() error { return pages.Release(e.srv.Cfg.BackendPath(), pages.Shared) })
}

// pinned calls f while the database is mapped where it is. Otherwise it may be mapped elsewhere at any moment, when it
// is defragmented or closed, and memory of others come to lie at its old address.
func (e *Embedded) pinned(ctx context.Context, f func() error) error {
	_, err := call(ctx, e, func(context.Context) (struct{}, error) {
		// A transaction that reads keeps the mapping.
		tx := e.srv.Backend().ConcurrentReadTx()
		defer tx.RUnlock()
		return struct{}{}, f()
	})
	return err
}
