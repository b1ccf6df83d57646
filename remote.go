package monoplane

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

	adminv1 "monoplane.dev/api/admin/v1"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/client"
	"monoplane.dev/datadir"
	"monoplane.dev/dirlock"
	"monoplane.dev/machinekey"
)

// dialTimeout bounds the search for a running server.
const dialTimeout = 5 * time.Second

// dialAdmin connects to the server that runs on a data directory, as its administrator.
func dialAdmin(ctx context.Context, dataDir string) (*client.Client, error) {
	dir, err := datadir.Open(dataDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("no cluster has run on %s: there is no such directory", dataDir)
	}
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	_, err = dir.ReadSecret(kubeconfigName)
	have := !errors.Is(err, os.ErrNotExist)
	if have && err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	// A directory that was copied has the kubeconfig of the original, whose server is not meant.
	var used *dirlock.InUseError
	switch err := dirlock.Held(dir); {
	case errors.As(err, &used) && have:
	case errors.As(err, &used):
		return nil, fmt.Errorf("the cluster on %s has no listener, or is just starting: it has no kubeconfig", dataDir)
	case err != nil:
		return nil, err
	case have:
		return nil, fmt.Errorf("no cluster runs on %s", dataDir)
	default:
		return nil, fmt.Errorf("no cluster has run on %s: it has no kubeconfig", dataDir)
	}
	cfg, err := client.LoadConfig(kubeconfigPath(dataDir))
	if err != nil {
		return nil, err
	}
	if cfg.Address == "" {
		return nil, fmt.Errorf("the cluster on %s has no gRPC listener", dataDir)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := client.Dial(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("no cluster runs on %s: %w", dataDir, err)
	}
	return c, nil
}

// Down stops the pods of the server that runs on dataDir, each with its own grace, then the server, and
// returns when it has let go of the directory. With leavePods the pods go on and the next start adopts them, also when
// they are being stopped already. Report, if not nil, is told the pods that are waited for.
//
// The server goes on stopping when ctx ends, once it was asked to; another Down joins the same stop. The error of pods that
// could not be stopped comes when the server has ended.
func Down(ctx context.Context, dataDir string, leavePods bool, report func(pods []string)) error {
	c, err := dialAdmin(ctx, dataDir)
	if err != nil {
		return err
	}
	defer c.Close()
	stream, err := adminv1.NewAdminClient(c.Conn()).Stop(ctx, &adminv1.StopRequest{LeavePods: leavePods})
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
			return errors.Join(errors.New("the server ended before it said that all pods have stopped"), dirlock.WaitFree(ctx, dataDir))
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

// SaveSnapshot writes a consistent copy of all data of the running server to a new file and returns its size
// in bytes. The file appears under its name only when it is complete.
func SaveSnapshot(ctx context.Context, dataDir, path string) (size int64, err error) {
	c, err := dialAdmin(ctx, dataDir)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	stream, err := adminv1.NewAdminClient(c.Conn()).Snapshot(ctx, &adminv1.SnapshotRequest{})
	if err != nil {
		return 0, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".part-*")
	if err != nil {
		return 0, err
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
			return 0, fmt.Errorf("the snapshot broke off: %w", err)
		}
		n, err := f.Write(chunk.GetData())
		size += int64(n)
		if err != nil {
			return 0, err
		}
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return 0, err
	}
	return size, syncDir(filepath.Dir(path))
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

// RestoreOptions say how a snapshot is restored.
type RestoreOptions struct {
	// ConfirmOriginalDead says, for the first start, what the field of Config of that name says.
	ConfirmOriginalDead bool
}

// RestoreSnapshot makes a data directory of a copy that SaveSnapshot wrote. The directory must not hold a
// cluster; a damaged copy is refused and leaves nothing behind. The pods of the snapshot may still run where it was
// taken, so that their node is refused at the start unless the options, or Config.ConfirmOriginalDead, say that they do
// not.
func RestoreSnapshot(dataDir string, r io.Reader, opts RestoreOptions) error {
	dir, err := datadir.Make(dataDir)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	lock, err := dirlock.AcquireIn(dir)
	if err != nil {
		return err
	}
	if err := store.Restore(etcdDir(dataDir), r); err != nil || !opts.ConfirmOriginalDead {
		return errors.Join(err, lock.Release())
	}
	key, _, err := machinekey.Ensure(dir)
	if err == nil {
		key.OriginalDead = true
		_, err = machinekey.Save(dir, key)
	}
	return errors.Join(err, lock.Release())
}

// Files and directories of the data directory.
const (
	kubeconfigName = "kubeconfig"
	etcdName       = "etcd"
)

func kubeconfigPath(dataDir string) string { return filepath.Join(dataDir, kubeconfigName) }

func etcdDir(dataDir string) string { return filepath.Join(dataDir, etcdName) }
