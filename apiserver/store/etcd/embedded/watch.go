package embedded

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"monoplane.dev/apiserver/store/etcd"
)

// Watch delivers the changes of all keys with prefix from revision from on. Changes must be received without
// delay: etcd buffers 128 of them and then falls back to reading them again every 100 ms.
func (e *Embedded) Watch(ctx context.Context, prefix string, from int64) (etcd.Watch, error) {
	w, err := call(ctx, e, func(context.Context) (*embeddedWatch, error) {
		w := &embeddedWatch{e: e, stream: e.srv.Watchable().NewWatchStream()}
		var err error
		w.id, err = w.stream.Watch(context.Background(), clientv3.AutoWatchID, []byte(prefix),
			[]byte(clientv3.GetPrefixRangeEnd(prefix)), from)
		if err != nil {
			w.stream.Close()
		}
		return w, err
	})
	if err != nil {
		return nil, err
	}
	return w, nil
}

type embeddedWatch struct {
	e      *Embedded
	stream mvcc.WatchStream
	id     mvcc.WatchID
}

func (w *embeddedWatch) Recv(ctx context.Context) (etcd.Batch, error) {
	select {
	case r, ok := <-w.stream.Chan():
		if !ok {
			return etcd.Batch{}, etcd.ErrClosed
		}
		return w.batch(r)
	case <-w.e.fail.done:
		return etcd.Batch{}, w.e.fail.err
	case <-w.e.srv.StopNotify():
		return etcd.Batch{}, etcd.ErrClosed
	case <-ctx.Done():
		return etcd.Batch{}, ctx.Err()
	}
}

// batch takes with r whatever else is there already.
func (w *embeddedWatch) batch(r mvcc.WatchResponse) (etcd.Batch, error) {
	b := etcd.Batch{}
	for {
		if r.CompactRevision != 0 {
			return etcd.Batch{}, etcd.ErrCompacted
		}
		b.Events = append(b.Events, r.Events...)
		// The revision of a response may be ahead of its events while the watch catches up.
		b.Revision = r.Revision
		if n := len(r.Events); n > 0 {
			b.Revision = r.Events[n-1].Kv.ModRevision
		}
		select {
		case next, ok := <-w.stream.Chan():
			if !ok {
				return b, nil
			}
			r = next
		default:
			return b, nil
		}
	}
}

func (w *embeddedWatch) Progress(ctx context.Context) {
	// It is a hint, and nobody waits for the answer.
	_, _ = call(ctx, w.e, func(context.Context) (struct{}, error) {
		w.stream.RequestProgress(w.id)
		return struct{}{}, nil
	})
}

func (w *embeddedWatch) Close() error { return w.e.stop(w.stream.Close, w.e.fail.done) }
