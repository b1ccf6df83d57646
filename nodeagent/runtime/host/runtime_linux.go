package host

import (
	"cmp"
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
	bounds  bounds
	dir     string
	claims  string // The directory of claims; "" when there is none.
	lock    *os.File
	bootID  string
	cgroups *cgroup.Manager
	oci     *OCI // Nil without images.
	users   userTest
	criu    string
	profile *profileLoader // Nil without AppArmor.
	since   int64          // When New returned, for ImageFsInfo and Status.

	closing context.Context // Done when Close was called.
	close   context.CancelFunc
	work    sync.WaitGroup // The goroutines that watch over shims. Added to while mu is held and closing is not done.

	measuring chan struct{} // Holds one while the files of a container are looked at.

	surveyed chan struct{} // Closed when others is known.

	// mu guards everything below, and the fields of sandboxes and containers that say so. It is never held during a
	// call to a shim, nor while a file is read or written.
	mu          sync.RWMutex
	sandboxes   map[string]*sandbox
	containers  map[string]*container
	names       map[podName]chan struct{} // Sandboxes that are being made; closed when they are.
	subscribers map[*subscriber]struct{}
	others      map[string][]other // What other directories were seen to run, by the pod's uid.
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
		log: cfg.Logger, dir: dir, oci: cfg.OCI, cgroups: &cgroup.Manager{}, criu: cmp.Or(cfg.criu, criuName),
		sandboxes: map[string]*sandbox{}, containers: map[string]*container{},
		names: map[podName]chan struct{}{}, subscribers: map[*subscriber]struct{}{},
		bounds: cfg.bounds.orDefaults(), surveyed: make(chan struct{}),
		measuring: make(chan struct{}, 1), others: map[string][]other{},
	}
	r.profile = newProfileLoader(r.log, r.bounds.profile)
	r.closing, r.close = context.WithCancel(context.Background())
	if r.bootID, err = sys.BootID(); err != nil {
		return nil, fmt.Errorf("host runtime: %w", err)
	}
	if r.lock, err = r.waitLock(filepath.Join(dir, lockName)); err != nil {
		return nil, fmt.Errorf("host runtime: %w", err)
	}
	if !cfg.NoCgroups {
		r.cgroups = r.discover(cfg.CgroupParent)
		if ok, why := r.cgroups.Killable(); !ok {
			r.log.Info("pods get no cgroup of their own; their processes are found by descent", "reason", why)
		}
		if !isRoot() && cfg.CgroupParent == "" {
			if err := r.cgroups.MakeRoom(); err != nil {
				r.log.Warn("limits of pods may not be enforced: this process cannot leave the cgroup that was delegated to it",
					"err", err)
			}
		}
	}
	r.since = now()
	r.claims = cfg.ClaimDir
	if r.claims == "" {
		r.claims = defaultClaimDir()
	}
	if err := openClaimDir(r.claims); err != nil {
		r.log.Warn("pods cannot be claimed; each sandbox looks for its pod among the processes of the machine instead",
			"error", err)
		r.claims = ""
	}
	r.start(r.firstSurvey)
	r.start(r.wakeShims)
	if r.claims != "" {
		r.start(r.sweepDead)
	}
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
func (r *Runtime) waitLock(name string) (*os.File, error) {
	var pause sys.Pause
	for deadline := time.Now().Add(r.bounds.lock); ; pause.Wait() {
		f, err := takeLock(name)
		if err == nil || !errors.Is(err, errInUse) || time.Now().After(deadline) {
			return f, err
		}
	}
}

// Close lets go of the directory. The pods go on running; the next New finds them. It waits for what hangs in the
// kernel (a file of a dead disk, or of /proc) for a few seconds only: that changes nothing any more when it goes on.
func (r *Runtime) Close() error {
	r.mu.Lock()
	r.close()
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
	idle := make(chan struct{})
	go func() {
		r.work.Wait()
		close(idle)
	}()
	patience := time.NewTimer(r.bounds.close)
	defer patience.Stop()
	select {
	case <-idle:
	case <-patience.C:
		r.log.Error("something of the host runtime hangs in the kernel and is left behind")
	}
	return r.lock.Close()
}
