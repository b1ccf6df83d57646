package store

import (
	"context"
	"hash/crc32"
	"io"

	"monoplane.dev/apiserver/store/etcd"
)

// Restore makes a data directory, missing or empty so far, from what Snapshot wrote. A snapshot that is
// incomplete or damaged is refused and nothing is left behind. Revisions go on far above those of the
// snapshot, because clients may have seen some that came after it.
func Restore(dir string, r io.Reader) error {
	ctx, cancel := context.WithTimeout(context.Background(), defaultStartTimeout)
	defer cancel()
	return etcd.Restore(ctx, dir, r, verifyValue(crc32.MakeTable(crc32.Castagnoli)))
}
