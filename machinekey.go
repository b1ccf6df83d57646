package monoplane

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/kinds/nodekey"
	"monoplane.dev/apiserver/store"
)

// machineKey returns the key by which a node name belongs to this machine (spec: NODE-7). It is made on the
// first start and kept in the data directory. A data directory with embedded data but without a key has been
// restored from a snapshot: who holds the data is the machine, so it goes on with the key that its node has.
func (c *Cluster) machineKey(ctx context.Context) (string, error) {
	path := filepath.Join(c.cfg.DataDir, "machine-key")
	data, err := os.ReadFile(path)
	if err == nil {
		if key := strings.TrimSpace(string(data)); key != "" {
			return key, nil
		}
		return "", fmt.Errorf("%s is empty; restore it, or delete it", path)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	key := ""
	if len(c.cfg.EtcdEndpoints) == 0 {
		if key, err = c.restoredKey(ctx); err != nil {
			return "", err
		}
	}
	if key == "" {
		key = rand.Text()
	}
	return key, os.WriteFile(path, []byte(key+"\n"), 0o600)
}

// restoredKey returns the key recorded on this machine's node in the store, empty for none.
func (c *Cluster) restoredKey(ctx context.Context) (string, error) {
	for _, name := range c.cfg.nodeNames() {
		node, err := c.store.Get(ctx, store.Key{Kind: corev1.NodeKind, Name: name}, "")
		if apierrors.Is(err, apierrors.NotFound) {
			continue
		}
		if err != nil {
			return "", err
		}
		return nodekey.Of(node.GetMetadata()), nil
	}
	return "", nil
}
