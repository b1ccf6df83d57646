package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/shim"
	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/host/sys"
)

// recover loads every sandbox of the directory and finds out what has become of it. One that does not answer, or
// whose rest cannot be killed, goes on being tended in the background.
func (r *Runtime) recover() error {
	parent := filepath.Join(r.dir, podsDir)
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.closing, r.bounds.settle)
	defer cancel()
	var settled sync.WaitGroup
	copies := 0
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), draftPrefix) {
			if err := os.RemoveAll(filepath.Join(parent, e.Name())); err != nil {
				return err
			}
			continue
		}
		sb, err := r.loadPatiently(ctx, e.Name())
		if sys.Exhausted(err) {
			return fmt.Errorf("sandbox %s: %w", e.Name(), err) // It is as sound as before: not to be ended for this.
		}
		if err != nil {
			r.log.Error("a sandbox cannot be read; what runs of it is ended", "sandbox", e.Name(), "error", err)
			sb = r.damaged(e.Name())
		}
		switch {
		case sb.isGone():
			copies++
			continue
		case sb.rec.damaged:
			r.start(func() { r.discard(sb) })
		default:
			r.start(func() { r.tend(sb) })
		}
		settled.Go(func() {
			if _, err := r.shimOf(ctx, sb); err != nil {
				r.log.Warn("a shim does not answer; still trying", "sandbox", sb.id, "uid", sb.rec.config.GetMetadata().GetUid())
			}
		})
	}
	settled.Wait()
	if copies > 0 {
		r.log.Warn("the directory is a copy of one that was used since the machine has started: its pods are taken as "+
			"ended, and none of them is started while it runs elsewhere on this machine", "dir", r.dir, "sandboxes", copies)
	}
	return nil
}

// loadPatiently reads a sandbox, again while nothing but the lack of descriptors or memory keeps it from that.
func (r *Runtime) loadPatiently(ctx context.Context, id string) (*sandbox, error) {
	var pause time.Duration
	for {
		sb, err := r.load(id)
		if !sys.Exhausted(err) || ctx.Err() != nil || !r.nap(&pause) {
			return sb, err
		}
	}
}

// load reads a sandbox and its containers, and enters them.
func (r *Runtime) load(id string) (*sandbox, error) {
	rec, err := loadSandbox(filepath.Join(r.dir, podsDir, id, sandboxName))
	if err != nil {
		return nil, err
	}
	sb := r.newSandbox(id, rec)
	parent := filepath.Join(sb.dir, shim.Containers)
	entries, err := os.ReadDir(parent)
	if err != nil {
		return nil, err
	}
	var list []*container
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), draftPrefix) {
			if err := os.RemoveAll(filepath.Join(parent, e.Name())); err != nil {
				return nil, err
			}
			continue
		}
		// What was made of a checkpoint before; the shim has ended the rest with the connection.
		if err := os.RemoveAll(filepath.Join(parent, e.Name(), checkpointName)); err != nil {
			return nil, err
		}
		crec, err := loadContainer(filepath.Join(parent, e.Name(), configName))
		if err != nil {
			return nil, fmt.Errorf("container %s: %w", e.Name(), err)
		}
		c := sb.newContainer(e.Name(), crec)
		state, err := loadState(c.dir)
		if sys.Exhausted(err) {
			return nil, err
		}
		if err == nil {
			c.mergeLocked(state)
		}
		if c.resources, err = loadResources(c.dir); err != nil {
			return nil, fmt.Errorf("container %s: %w", e.Name(), err)
		}
		list = append(list, c)
	}
	if sb.resources, err = loadResources(sb.dir); err != nil {
		return nil, err
	}
	sb.shim, _ = loadShim(sb.dir)
	var joined bool
	sb.ips, joined, sb.addressesBack = loadAddresses(sb.dir)
	// Whoever made it was killed before it was connected: without an address of its own it would pass for one that
	// shares the machine's.
	sb.ending = !joined && rec.isolated && r.ownNetwork(rec.config)
	copied, err := r.isCopy(sb)
	if err != nil {
		return nil, err
	}
	if copied {
		r.disown(sb, list)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sandboxes[sb.id] = sb
	for _, c := range list {
		r.enterLocked(c)
	}
	return sb, nil
}

// damaged enters a sandbox whose files make no sense, as one that is ending.
func (r *Runtime) damaged(id string) *sandbox {
	sb := r.newSandbox(id, &sandboxRecord{
		config:    &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "damaged", Uid: id}},
		createdAt: now(), bootID: r.bootID, damaged: true,
	})
	sb.ending = true
	sb.shim, _ = loadShim(sb.dir)
	r.mu.Lock()
	r.sandboxes[id] = sb
	r.mu.Unlock()
	return sb
}

// discard ends a damaged sandbox, and removes it. Without its record nothing but the lock of its directory tells
// which processes are its own: those that run without a shim that holds it may belong to the directory that this one
// was copied from, so that they are waited for, not killed.
func (r *Runtime) discard(sb *sandbox) {
	var pause time.Duration
	for {
		holders, err := lockHolders(sb.dir)
		if err == nil && len(holders) == 0 {
			break
		}
		for _, p := range holders {
			if m, err := sys.MarkerOf(p.PID); err == nil && m != 0 {
				sb.rec.marker, sb.rec.group = m.Pod(), r.cgroups.Pod(sb.id)
			}
			_ = sys.Signal(p, killSignal)
		}
		r.report(sb, holders)
		if !r.nap(&pause) {
			return
		}
	}
	if !r.clear(sb, nil, sb.rec.marker != 0) {
		return
	}
	if err := r.removeGroup(r.closing, sb.rec.group); err != nil && r.closing.Err() == nil {
		r.log.Error("the cgroup of a damaged sandbox cannot be removed", "sandbox", sb.id, "error", err)
	}
	if err := r.leaveDamaged(sb); err != nil {
		if r.closing.Err() != nil {
			return // The next New goes on.
		}
		r.log.Error("what a damaged sandbox had of images and network cannot be given back", "sandbox", sb.id, "error", err)
	}
	if err := withdraw(filepath.Join(r.dir, podsDir), sb.id); err != nil {
		r.log.Error("a damaged sandbox cannot be removed", "sandbox", sb.id, "error", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sandboxes, sb.id)
	close(sb.gone)
}

// noteShim takes in what a shim can do.
func (r *Runtime) noteShim(sb *sandbox, h *shimwire.HelloReply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sb.version, sb.noView, sb.init, sb.users = h.Version, h.NoView, int(h.Init), int(h.Users)
	if h.Version < shimwire.Views {
		sb.noView = "the pod was started by an older version of monoplane, whose shim can make no view of the filesystem " +
			"and cannot take privileges away: delete the pod, and create it anew"
	}
}

// follow watches over a connection: when it is lost, the sandbox is tended.
func (r *Runtime) follow(sb *sandbox, conn *shimConn) {
	r.mu.Lock()
	sb.setConnLocked(conn)
	if r.closing.Err() != nil {
		conn.conn.Close() // Close has been here before.
	}
	r.startLocked(func() {
		<-conn.done
		conn.mu.Lock()
		orderly := conn.orderly
		conn.mu.Unlock()
		r.mu.Lock()
		sb.setConnLocked(nil)
		sb.orderly = sb.orderly || orderly
		r.mu.Unlock()
		r.tend(sb)
	})
	r.mu.Unlock()
}

// tend finds out whether the shim of a sandbox lives: its lock tells. If so it connects to it, if not it buries the
// sandbox. It tries until one of both has worked, because to guess would mean to start a pod twice or to kill one.
func (r *Runtime) tend(sb *sandbox) {
	var pause time.Duration
	for r.closing.Err() == nil {
		lock, err := takeLock(filepath.Join(sb.dir, lockName))
		if err == nil {
			r.bury(sb)
			lock.Close()
			return
		}
		if err := r.connect(sb); err == nil {
			return
		}
		r.nap(&pause)
	}
}

// connect connects to the shim of a sandbox and takes in what it knows.
func (r *Runtime) connect(sb *sandbox) error {
	u, err := dialShim(sb.dir, shim.SocketName)
	if err != nil {
		return err
	}
	conn := newShimConn(u, r.bounds.send)
	go conn.read(func(rec shimwire.Container) { r.noteEvent(sb, rec) })
	ctx, cancel := context.WithTimeout(r.closing, r.bounds.hello)
	defer cancel()
	h, err := conn.hello(ctx, shimwire.Hello, nil)
	if err == nil && (h.SandboxID != sb.id || h.BootID != r.bootID) {
		err = errors.New("the shim belongs to another sandbox")
	}
	if err != nil {
		conn.conn.Close()
		<-conn.done
		return err
	}
	for _, rec := range h.Containers {
		r.noteEvent(sb, rec)
	}
	r.noteShim(sb, h)
	r.follow(sb, conn)
	return nil
}
