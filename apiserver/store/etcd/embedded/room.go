package embedded

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"monoplane.dev/apiserver/store/etcd"
)

// etcd ends when it cannot write to its disk. So no write begins that it may be unable to end: of reserve bytes it can
// make the next segment of its log, and ahead is claimed from the file system for the database before it grows, so
// that the batches that are still in memory find room there even if somebody else has taken the rest of the disk.
const (
	reserve = 2 * walSegmentBytes
	ahead   = 2 * batchBytes
)

// disk is where the server writes.
type disk struct {
	dir, database string

	mu sync.Mutex
	// claimed is how large the database may become without asking the file system for room.
	claimed int64
	// unable: the file system gives no room in advance.
	unable bool
}

// Room says why nothing can be written to a database in a directory: no room is left, or its disk is read-only.
func Room(dir string) error {
	free, err := freeBytes(dir)
	if err != nil {
		return fmt.Errorf("%w: %w", etcd.ErrDisk, err)
	}
	if free < reserve {
		return fmt.Errorf("%w: no space left on device: %d MiB are free in %s, and etcd needs %d", etcd.ErrDisk,
			free>>20, dir, int64(reserve)>>20)
	}
	return nil
}

// check says why nothing can be written now, to a database that is size bytes long.
func (d *disk) check(size int64) error {
	if err := Room(d.dir); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.unable || size+ahead/2 <= d.claimed {
		return nil
	}
	switch err := claim(d.database, size+ahead); {
	case errors.Is(err, errors.ErrUnsupported):
		d.unable = true
	case err != nil:
		return fmt.Errorf("%w: %w", etcd.ErrDisk, err)
	default:
		d.claimed = size + ahead
	}
	return nil
}

// replaced is told that the database is in a new file.
func (d *disk) replaced() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.claimed = 0
}

// canWrite says why a transaction cannot be begun; one that only reads always can.
func (e *Embedded) canWrite(req *etcdserverpb.TxnRequest) error {
	for _, op := range slices.Concat(req.GetSuccess(), req.GetFailure()) {
		if op.GetRequestRange() == nil {
			return e.diskError()
		}
	}
	return nil
}

// diskError says why nothing can be written now.
func (e *Embedded) diskError() error { return e.disk.check(e.srv.Backend().Size()) }
