package monoplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/store/etcd/embedded"
	"monoplane.dev/apiserver/store/seal"
	"monoplane.dev/internal/datadir"
	"monoplane.dev/internal/dirlock"
	"monoplane.dev/internal/machinekey"
)

// RestoreOptions say how a snapshot is restored.
type RestoreOptions struct {
	// ConfirmOriginalDead says, for the first start, what the field of Config of that name says.
	ConfirmOriginalDead bool
	// SecretsKey is what is in the file secrets.key of the original. Without it the cluster starts only when a copy of
	// the file has been put into the directory: what it does not hold, nobody can read.
	SecretsKey []byte
}

// restoreLimit bounds a restore.
const restoreLimit = 30 * time.Second

// RestoreSnapshot makes a data directory of a copy that was saved with admin.SaveSnapshot (package client/admin). The
// directory must not hold a cluster; a damaged copy is refused and leaves nothing behind. The pods of the snapshot may
// still run where it was taken, so that their node is refused at the start unless the options, or
// Config.ConfirmOriginalDead, say that they do not.
func RestoreSnapshot(dataDir string, r io.Reader, opts RestoreOptions) error {
	dir, err := datadir.Make(dataDir)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	lock, err := dirlock.AcquireIn(dir)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), restoreLimit)
	defer cancel()
	err = embedded.Restore(ctx, filepath.Join(dataDir, datadir.Etcd), r, store.VerifyValue)
	if err == nil && len(opts.SecretsKey) > 0 {
		err = seal.Import(dir, opts.SecretsKey)
	}
	if err != nil || !opts.ConfirmOriginalDead {
		return errors.Join(err, lock.Release())
	}
	key, _, err := machinekey.Ensure(dir)
	if err == nil {
		key.OriginalDead = true
		_, err = machinekey.Save(dir, key)
	}
	return errors.Join(err, lock.Release())
}
