package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"monoplane.dev/nodeagent/runtime/host/cgroup"
	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/host/sys"
)

// EndUnwritable ends all pods of a runtime's directory on a disk that can be read only, where there can be no Runtime:
// each container is told to stop, and killed after the grace. Nothing is recorded; the next Runtime finds the pods'
// ends unknown. It returns how many pods there were.
func EndUnwritable(ctx context.Context, dir string, grace time.Duration, log *slog.Logger) (ended int, err error) {
	lock, err := os.Open(filepath.Join(dir, lockName))
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	if held, err := sys.Lock(lock); err != nil || held {
		return 0, errors.Join(fmt.Errorf("%s %w", dir, errInUse), err)
	}
	boot, err := sys.BootID()
	if err != nil {
		return 0, err
	}
	names, err := os.ReadDir(filepath.Join(dir, podsDir))
	if err != nil {
		return 0, err
	}
	r := &Runtime{log: log, dir: dir, bounds: bounds{}.orDefaults(), bootID: boot, cgroups: &cgroup.Manager{},
		closing: ctx}
	var ends errgroup.Group
	for _, d := range names {
		rec, err := loadSandbox(filepath.Join(dir, podsDir, d.Name(), sandboxName))
		if err != nil || strings.HasPrefix(d.Name(), draftPrefix) || rec.bootID != boot {
			continue // Without its record nobody knows what is the pod's.
		}
		ended++
		ends.Go(func() error { return r.endUnwritable(ctx, r.newSandbox(d.Name(), rec), grace) })
	}
	return ended, ends.Wait()
}

func (r *Runtime) endUnwritable(ctx context.Context, sb *sandbox, grace time.Duration) error {
	if at, err := placeOf(sb.dir); err != nil || sb.rec.place != (place{}) && at != sb.rec.place {
		return err // A copy's pods are the original's.
	}
	if u, err := callShim(ctx, sb.dir); err == nil { // Else the shim is dead.
		conn := newShimConn(u, r.bounds.send)
		go conn.read(func(shimwire.Container) {})
		r.stopByShim(ctx, conn, grace)
		conn.conn.Close()
		<-conn.done
	}
	if p, ok := loadShim(sb.dir); ok && sys.IsAlive(p) {
		_ = sys.Signal(p, killSignal) // It has not ended as it was told to.
	}
	if !r.clear(sb, nil, true) {
		return fmt.Errorf("sandbox %s has not ended: %w", sb.id, context.Cause(ctx))
	}
	return r.removeGroup(ctx, sb.rec.group)
}

// stopByShim has a shim end its containers, each with the grace, and itself, as far as it does so in time.
func (r *Runtime) stopByShim(ctx context.Context, conn *shimConn, grace time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, grace+r.bounds.margin)
	defer cancel()
	h, err := conn.hello(ctx, shimwire.Hello, nil)
	if err != nil {
		return // What does not answer is killed.
	}
	var stops sync.WaitGroup
	for _, c := range h.Containers {
		stop := shimwire.StopRequest{ContainerID: c.ID, Timeout: int64(grace), Begun: sys.BootTime()}
		stops.Go(func() { _, _ = conn.container(ctx, shimwire.Stop, stop.Encode()) })
	}
	stops.Wait()
	_, _ = conn.call(ctx, shimwire.Shutdown, nil)
}
