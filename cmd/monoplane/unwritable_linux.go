package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	"monoplane.dev/nodeagent/network/nodens"
	"monoplane.dev/nodeagent/runtime/host"
	"monoplane.dev/nodeagent/runtime/ocinode"
)

// unwritableGrace is how long pods have to end whose own graces are known only to a store that cannot be opened: what
// they have unless they ask for another.
const unwritableGrace = 30 * time.Second

// endUnwritable ends the pods of a data directory that can only be read, on which no server can be started, and their
// network. What it cannot take away, such as mounts, the next down does where the directory can be written to.
func endUnwritable(ctx context.Context, stdout io.Writer, dataDir string) error {
	fmt.Fprintf(stdout, "The directory is read-only: its pods get %s to stop, and nothing of that is recorded.\n",
		unwritableGrace)
	nodes, err := filepath.Glob(filepath.Join(dataDir, "nodes", "*"))
	for _, node := range nodes {
		_, failed := host.EndUnwritable(ctx, filepath.Join(node, "pods"), unwritableGrace, slog.New(slog.DiscardHandler))
		if errors.Is(failed, fs.ErrNotExist) {
			failed = nil // Its runtime is another one.
		}
		if failed == nil {
			failed = nodens.Remove(ctx, nodens.Config{Cluster: node, Dir: ocinode.NetworkDir(node)})
		}
		err = errors.Join(err, failed)
	}
	return err
}
