package embedded

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"monoplane.dev/internal/dirlock"
)

const (
	// revisionBump keeps revisions that clients have seen after the snapshot was taken from being given again to
	// other content.
	revisionBump = 1_000_000_000
	restoreDir   = "restore.tmp"
	restoreLimit = time.Minute
	restoreBatch = 10_000
)

// Restore makes a data directory from a snapshot. dir must be missing or empty. A snapshot that is incomplete, or
// damaged as verify says of its values, is refused and leaves dir empty. One that was interrupted can be begun again;
// Start refuses its directory. The new server continues with revisions far above those of the snapshot, because
// clients may have seen some that came after it, and without its history, so that every watcher starts anew.
//
// The snapshot's keys and leases move into the database of a freshly made server, so that nothing depends on
// the identity of the cluster in which the snapshot was taken.
func Restore(ctx context.Context, dir string, r io.Reader, verify func(key, value []byte) error) (err error) {
	lock, err := dirlock.Acquire(dir)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Release() }()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return e.Name() != dirlock.Name && e.Name() != restoreDir
	}) {
		return fmt.Errorf("restore: the directory %s is not empty", dir)
	}
	tmp := filepath.Join(dir, restoreDir)
	// What a restore has left that was interrupted is of no use.
	if err := errors.Join(os.RemoveAll(tmp), os.Mkdir(tmp, 0o700)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()

	snapshot := filepath.Join(tmp, "snapshot")
	if err := receive(snapshot, r); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if _, err := checkDB(snapshot, restoreLimit, verify); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	fresh := filepath.Join(tmp, "new")
	e, err := Start(ctx, Config{Dir: fresh}, nil)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if err := e.Close(); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if err := transplant(datadir.ToBackendFileName(fresh), snapshot); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if err := os.Rename(datadir.ToMemberDir(fresh), datadir.ToMemberDir(dir)); err != nil {
		return err
	}
	return syncDir(dir)
}

// checkRestored refuses a directory whose restore was interrupted: a server would begin there with nothing. What was
// restored whole is only cleaned up. The caller holds the lock.
func checkRestored(dir string) error {
	tmp := filepath.Join(dir, restoreDir)
	if _, err := os.Lstat(tmp); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	switch _, err := os.Stat(datadir.ToMemberDir(dir)); {
	case err == nil:
		return os.RemoveAll(tmp)
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("the restore of a snapshot into %s was interrupted; restore it again, or remove %s to begin "+
			"without it", dir, tmp)
	default:
		return err
	}
}

// receive writes the database in r to path and compares it with the hash that follows it.
func receive(path string, r io.Reader) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := io.Copy(f, r)
	if err != nil {
		return err
	}
	// A database is a whole number of pages.
	const sector = 512
	n -= sha256.Size
	if n <= 0 || n%sector != 0 {
		return errors.New("the snapshot is incomplete")
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, n)); err != nil {
		return err
	}
	want := make([]byte, sha256.Size)
	if _, err := f.ReadAt(want, n); err != nil {
		return err
	}
	if !slices.Equal(want, h.Sum(nil)) {
		return errors.New("the snapshot is damaged: its SHA-256 does not match")
	}
	return f.Truncate(n)
}

// transplant copies keys and leases from the database at from into the one at to.
func transplant(to, from string) error {
	src, err := bolt.Open(from, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := bolt.Open(to, 0o600, &bolt.Options{Timeout: time.Second})
	if err != nil {
		return err
	}
	err = src.View(func(tx *bolt.Tx) error {
		for _, name := range [][]byte{schema.Key.Name(), schema.Lease.Name()} {
			if err := copyBucket(dst, tx.Bucket(name), name); err != nil {
				return err
			}
		}
		return bump(dst, tx.Bucket(schema.Key.Name()))
	})
	return errors.Join(err, dst.Close())
}

func copyBucket(dst *bolt.DB, b *bolt.Bucket, name []byte) error {
	if b == nil {
		return nil
	}
	c := b.Cursor()
	for k, v := c.First(); k != nil; {
		err := dst.Update(func(tx *bolt.Tx) error {
			out, err := tx.CreateBucketIfNotExists(name)
			if err != nil {
				return err
			}
			out.FillPercent = 0.9 // keys come in order
			for n := 0; k != nil && n < restoreBatch; n++ {
				if err := out.Put(k, v); err != nil {
					return err
				}
				k, v = c.Next()
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// bump schedules a compaction at a revision far ahead. etcd carries it out when it starts, and never goes below
// that revision again.
func bump(dst *bolt.DB, keys *bolt.Bucket) error {
	var last []byte
	if keys != nil {
		last, _ = keys.Cursor().Last()
	}
	var rev int64
	if len(last) >= 17 {
		rev = mvcc.BytesToRev(last[:17]).Main
	}
	value := make([]byte, 17)
	binary.BigEndian.PutUint64(value, uint64(rev+revisionBump))
	value[8] = '_'
	return dst.Update(func(tx *bolt.Tx) error {
		meta, err := tx.CreateBucketIfNotExists(schema.Meta.Name())
		if err != nil {
			return err
		}
		return meta.Put(schema.ScheduledCompactKeyName, value)
	})
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
