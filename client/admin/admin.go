// Package admin acts as the administrator of the cluster that runs on a data directory of this machine: it stops the
// server or the agent of a node, saves a snapshot, and asks where a pod can go. It finds the server by the kubeconfig
// in the directory, and makes sure by the directory's lock that this is the server which runs there, not that of which
// the directory is a copy.
package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1rpc "monoplane.dev/api/admin/v1/rpc"
	"monoplane.dev/client"
	"monoplane.dev/internal/datadir"
	"monoplane.dev/internal/dirlock"
)

// A server that holds the directory is given dialTimeout to answer: it may be just starting.
const (
	dialTimeout = 30 * time.Second
	dialPause   = 50 * time.Millisecond
)

// NotRunningError says that no server runs on a data directory. There may be pods of one that was killed.
type NotRunningError struct {
	// Dir is the directory.
	Dir string
	// Never: there is nothing by which one could have been reached.
	Never bool
}

// Error returns the message.
func (e *NotRunningError) Error() string {
	if e.Never {
		return fmt.Sprintf("no cluster has run on %s: it has no kubeconfig", e.Dir)
	}
	return "no cluster runs on " + e.Dir
}

// dial connects to the server that runs on a data directory, as its administrator. One that is just starting is waited
// for.
func dial(ctx context.Context, dataDir string) (*client.Client, error) {
	dir, err := datadir.Open(dataDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("no cluster has run on %s: there is no such directory", dataDir)
	}
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	for {
		c, starting, err := dialNow(ctx, dir)
		if !starting {
			return c, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(dialPause):
		}
	}
}

// dialNow connects to the server that runs on a data directory now. With an error it reports whether there may be one
// that is just starting.
func dialNow(ctx context.Context, dir *datadir.Dir) (_ *client.Client, starting bool, err error) {
	_, err = dir.ReadSecret(datadir.Kubeconfig)
	have := !errors.Is(err, os.ErrNotExist)
	if have && err != nil {
		return nil, false, fmt.Errorf("data directory: %w", err)
	}
	// A directory that was copied has the kubeconfig of the original, whose server is not meant.
	var used *dirlock.InUseError
	switch err := dirlock.Held(dir); {
	case errors.As(err, &used) && have:
	case errors.As(err, &used):
		err = fmt.Errorf("the cluster on %s has no listener, or is just starting: it has no kubeconfig", dir.Path())
		return nil, true, err
	case err != nil:
		return nil, false, err
	default:
		return nil, false, &NotRunningError{Dir: dir.Path(), Never: !have}
	}
	cfg, err := client.LoadConfig(filepath.Join(dir.Path(), datadir.Kubeconfig))
	if err != nil {
		return nil, false, err
	}
	if cfg.Address == "" {
		return nil, false, fmt.Errorf("the cluster on %s has no gRPC listener", dir.Path())
	}
	c, err := client.Dial(ctx, cfg)
	if err != nil { // The kubeconfig can be that of the last start.
		return nil, true, fmt.Errorf("the server on %s does not answer: %w", dir.Path(), err)
	}
	return c, false, nil
}

// Stop stops the pods of the server that runs on dataDir, each with its own grace, then the server, and
// returns when it has let go of the directory. With leavePods the pods go on and the next start adopts them, also when
// they are being stopped already. Report, if not nil, is told the pods that are waited for. Without a server the error
// is a *NotRunningError.
//
// The server goes on stopping when ctx ends, once it was asked to; another Stop joins the same stop. The error of pods
// that could not be stopped comes when the server has ended.
func Stop(ctx context.Context, dataDir string, leavePods bool, report func(pods []string)) error {
	c, err := dial(ctx, dataDir)
	if err != nil {
		return err
	}
	defer c.Close()
	stream, err := adminv1rpc.NewAdminClient(c.Conn()).Stop(ctx, &adminv1rpc.StopRequest{LeavePods: leavePods})
	if err != nil {
		return err
	}
	for asked := false; ; asked = true {
		progress, err := stream.Recv()
		switch code := status.Code(err); {
		case errors.Is(err, io.EOF):
			return dirlock.WaitFree(ctx, dataDir)
		case ctx.Err() != nil && asked:
			return fmt.Errorf("%w; the server goes on stopping its pods and ends after them", ctx.Err())
		case ctx.Err() != nil:
			return fmt.Errorf("%w before the server answered", ctx.Err())
		case code == codes.Unavailable && leavePods: // the server went before it could end the stream
			return dirlock.WaitFree(ctx, dataDir)
		case code == codes.Unavailable:
			why := errors.New("the server ended before it said that all pods have stopped")
			return errors.Join(why, dirlock.WaitFree(ctx, dataDir))
		case code == codes.DeadlineExceeded: // it stops without having stopped all pods, and says why
			return errors.Join(errors.New(status.Convert(err).Message()), dirlock.WaitFree(ctx, dataDir))
		case err != nil:
			return fmt.Errorf("the server did not stop: %w", err)
		}
		if report != nil {
			report(progress.GetPods())
		}
	}
}

// Saved is a snapshot.
type Saved struct {
	// Bytes is how large it is.
	Bytes int64
	// SecretsKey is the id of the key with which the Secrets in it are encrypted, which is not in it.
	SecretsKey string
}

// SaveSnapshot writes a consistent copy of all data of the running server to a new file. The file appears under its
// name only when it is complete.
func SaveSnapshot(ctx context.Context, dataDir, path string) (saved Saved, err error) {
	c, err := dial(ctx, dataDir)
	if err != nil {
		return saved, err
	}
	defer c.Close()
	stream, err := adminv1rpc.NewAdminClient(c.Conn()).Snapshot(ctx, &adminv1rpc.SnapshotRequest{})
	if err != nil {
		return saved, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".part-*")
	if err != nil {
		return saved, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	defer f.Close()
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return saved, fmt.Errorf("the snapshot broke off: %w", err)
		}
		if key := chunk.GetSecretsKey(); key != "" {
			saved.SecretsKey = key
		}
		n, err := f.Write(chunk.GetData())
		saved.Bytes += int64(n)
		if err != nil {
			return saved, err
		}
	}
	if err := f.Sync(); err != nil {
		return saved, err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return saved, err
	}
	return saved, syncDir(filepath.Dir(path))
}

// syncDir makes the name of a file outlive a power failure.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return err
	}
	return nil
}
