package embedded

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/backend"

	"monoplane.dev/apiserver/store/etcd"
)

// Relieve makes room after ErrNoSpace: it discards the history before revision, gives the freed pages back to
// the file system if there are any, and then switches the alarm off that makes etcd refuse writes.
func (e *Embedded) Relieve(ctx context.Context, revision int64) error {
	if err := e.diskError(); err != nil {
		return err
	}
	_, err := callFor(ctx, e, etcd.RoomLimit, func(ctx context.Context) (*etcdserverpb.CompactionResponse, error) {
		return e.srv.Compact(ctx, &etcdserverpb.CompactionRequest{Revision: revision, Physical: true})
	})
	if err != nil && !errors.Is(err, etcd.ErrCompacted) {
		return fmt.Errorf("compact: %w", err)
	}
	// etcd is late to tell which pages are free, so that only the smaller file says what was freed.
	_, err = callFor(ctx, e, etcd.RoomLimit, func(context.Context) (struct{}, error) {
		return struct{}{}, e.srv.Defragment()
	})
	e.disk.replaced()
	if err != nil {
		return fmt.Errorf("defragment: %w", err)
	}
	if size, _ := e.Size(); !etcd.HasRoom(size, e.srv.Cfg.QuotaBackendBytes) {
		return etcd.ErrNothingFreed
	}
	for _, a := range e.srv.Alarms() {
		if a.Alarm != etcdserverpb.AlarmType_NOSPACE {
			continue
		}
		_, err := callFor(ctx, e, etcd.RoomLimit, func(ctx context.Context) (*etcdserverpb.AlarmResponse, error) {
			return e.srv.Alarm(ctx, &etcdserverpb.AlarmRequest{
				Action: etcdserverpb.AlarmRequest_DEACTIVATE, MemberID: a.MemberID, Alarm: a.Alarm,
			})
		})
		if err != nil {
			return fmt.Errorf("switch alarm off: %w", err)
		}
	}
	return nil
}

// Snapshot writes a consistent copy of the database, followed by its SHA-256, as etcdctl does. Writes go on
// meanwhile.
func (e *Embedded) Snapshot(ctx context.Context, w io.Writer) error {
	snap, err := call(ctx, e, func(context.Context) (backend.Snapshot, error) { return e.srv.Backend().Snapshot(), nil })
	if err != nil {
		return err
	}
	h := sha256.New()
	_, err = snap.WriteTo(io.MultiWriter(w, h))
	if cerr := snap.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	if _, err := w.Write(h.Sum(nil)); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	return nil
}

// Size returns the bytes of the database file, and how many of them are in use.
func (e *Embedded) Size() (total, used int64) {
	be := e.srv.Backend()
	return be.Size(), be.SizeInUse()
}
