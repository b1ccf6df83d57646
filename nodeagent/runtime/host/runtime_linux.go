package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/cgroup"
	"monoplane.dev/nodeagent/runtime/host/sys"
)

// Runtime implements CRI's RuntimeServiceServer and ImageServiceServer.
type Runtime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer

	log     *slog.Logger
	dir     string
	lock    *os.File
	bootID  string
	cgroups *cgroup.Manager
	since   int64 // When New returned, for ImageFsInfo and Status.

	closing context.Context // Done when Close was called.
	close   context.CancelFunc
	work    sync.WaitGroup // The goroutines that watch over shims.

	// mu guards everything below, and the fields of sandboxes and containers that say so. It is never held during a
	// call to a shim, nor while a file is read or written.
	mu          sync.RWMutex
	sandboxes   map[string]*sandbox
	containers  map[string]*container
	names       map[podName]chan struct{} // Sandboxes that are being made; closed when they are.
	subscribers map[*subscriber]struct{}
}

// New takes over the directory and the pods in it: it connects to the shims that live, and ends and reports what is
// left of those that do not. A shim that does not answer within a few seconds is waited for in the background.
func New(cfg Config) (*Runtime, error) {
	if cfg.Dir == "" || cfg.Logger == nil {
		return nil, errors.New("host runtime: Dir and Logger are required")
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(dir, podsDir), 0o700); err != nil {
		return nil, fmt.Errorf("host runtime: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, fmt.Errorf("host runtime: %w", err)
	}
	r := &Runtime{
		log: cfg.Logger, dir: dir, cgroups: &cgroup.Manager{},
		sandboxes: map[string]*sandbox{}, containers: map[string]*container{},
		names: map[podName]chan struct{}{}, subscribers: map[*subscriber]struct{}{},
	}
	r.closing, r.close = context.WithCancel(context.Background())
	if r.bootID, err = sys.BootID(); err != nil {
		return nil, fmt.Errorf("host runtime: %w", err)
	}
	if r.lock, err = waitLock(filepath.Join(dir, lockName)); err != nil {
		return nil, fmt.Errorf("host runtime: %w", err)
	}
	if !cfg.NoCgroups {
		r.cgroups = cgroup.Discover(cfg.CgroupParent)
		if ok, why := r.cgroups.Killable(); !ok {
			r.log.Info("pods get no cgroup of their own; their processes are found by descent", "reason", why)
		}
	}
	r.since = now()
	if err := r.recover(); err != nil {
		return nil, errors.Join(fmt.Errorf("host runtime: %w", err), r.Close())
	}
	return r, nil
}

var errInUse = errors.New("is in use by another process")

func takeLock(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	held, err := sys.Lock(f)
	if held {
		err = fmt.Errorf("%s %w", filepath.Dir(name), errInUse)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// waitLock takes the lock of the directory. A predecessor that was killed while it started a process leaves a copy of
// the lock in that process until its program is executed, so that a lock that is held is waited for a little.
func waitLock(name string) (*os.File, error) {
	var pause sys.Pause
	for deadline := time.Now().Add(lockTime); ; pause.Wait() {
		f, err := takeLock(name)
		if err == nil || !errors.Is(err, errInUse) || time.Now().After(deadline) {
			return f, err
		}
	}
}

// Close lets go of the directory. The pods go on running; the next New finds them.
func (r *Runtime) Close() error {
	r.close()
	r.mu.Lock()
	var conns []*shimConn
	for _, sb := range r.sandboxes {
		if sb.conn != nil {
			conns = append(conns, sb.conn)
		}
	}
	r.mu.Unlock()
	for _, c := range conns {
		c.conn.Close()
		<-c.done
	}
	r.work.Wait()
	return r.lock.Close()
}
