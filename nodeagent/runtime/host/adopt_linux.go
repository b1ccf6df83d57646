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

	"monoplane.dev/nodeagent/runtime/host/shim"
	"monoplane.dev/nodeagent/runtime/host/sys"
	"monoplane.dev/nodeagent/runtime/host/wire"
)

const (
	// settleTime is how long New waits for the shims of an earlier life.
	settleTime = 5 * time.Second
	// lockTime is how long New waits for the lock of its directory.
	lockTime = 2 * time.Second
	// helloTime is how long a shim may take to say who it is.
	helloTime = 2 * time.Second
	// retryTime is the longest pause between attempts to reach a shim that holds its lock but does not answer.
	retryTime = 100 * time.Millisecond
)

// recover loads every sandbox of the directory and finds out what has become of it.
func (r *Runtime) recover() error {
	parent := filepath.Join(r.dir, podsDir)
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	var found []*sandbox
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), draftPrefix) {
			if err := os.RemoveAll(filepath.Join(parent, e.Name())); err != nil {
				return err
			}
			continue
		}
		sb, err := r.load(e.Name())
		if err != nil {
			r.log.Error("a sandbox cannot be read; what runs of it is ended", "sandbox", e.Name(), "error", err)
			r.discard(e.Name())
			continue
		}
		found = append(found, sb)
	}
	ctx, cancel := context.WithTimeout(r.closing, settleTime)
	defer cancel()
	var settled sync.WaitGroup
	for _, sb := range found {
		r.work.Go(func() { r.tend(sb) })
		settled.Go(func() {
			if _, err := r.shimOf(ctx, sb); err != nil {
				r.log.Warn("a shim does not answer; still trying", "sandbox", sb.id, "uid", sb.rec.config.GetMetadata().GetUid())
			}
		})
	}
	settled.Wait()
	return nil
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
		crec, err := loadContainer(filepath.Join(parent, e.Name(), configName))
		if err != nil {
			return nil, fmt.Errorf("container %s: %w", e.Name(), err)
		}
		c := sb.newContainer(e.Name(), crec)
		if state, err := loadState(c.dir); err == nil {
			c.mergeLocked(state)
		}
		list = append(list, c)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sandboxes[sb.id] = sb
	for _, c := range list {
		r.enterLocked(c)
	}
	return sb, nil
}

// discard ends a sandbox whose files are damaged, and removes it. If its shim does not end, it stays for the next New.
func (r *Runtime) discard(id string) {
	sb := r.newSandbox(id, &sandboxRecord{})
	ctx, cancel := context.WithTimeout(r.closing, settleTime)
	defer cancel()
	if conn, err := dialShim(sb.dir, shim.SocketName); err == nil {
		c := newShimConn(conn)
		go c.read(func(wire.Container) {})
		_, err = c.call(ctx, wire.Shutdown, nil)
		c.conn.Close()
		<-c.done
		if err != nil && !errors.Is(err, errConnLost) {
			r.log.Error("the shim of a damaged sandbox does not end", "sandbox", id, "error", err)
			return
		}
	}
	if err := withdraw(filepath.Join(r.dir, podsDir), id); err != nil {
		r.log.Error("a damaged sandbox cannot be removed", "sandbox", id, "error", err)
	}
}

// follow watches over a connection: when it is lost, the sandbox is tended.
func (r *Runtime) follow(sb *sandbox, conn *shimConn) {
	r.mu.Lock()
	sb.setConnLocked(conn)
	if r.closing.Err() != nil {
		conn.conn.Close() // Close may have been here before.
	}
	r.mu.Unlock()
	r.work.Go(func() {
		<-conn.done
		r.mu.Lock()
		sb.setConnLocked(nil)
		r.mu.Unlock()
		r.tend(sb)
	})
}

// tend finds out whether the shim of a sandbox lives: its lock tells. If so it connects to it, if not it buries the
// sandbox. It tries until one of both has worked, because to guess would mean to start a pod twice or to kill one.
func (r *Runtime) tend(sb *sandbox) {
	pause := time.Millisecond
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
		select {
		case <-time.After(pause):
		case <-r.closing.Done():
		}
		pause = min(2*pause, retryTime)
	}
}

// connect connects to the shim of a sandbox and takes in what it knows.
func (r *Runtime) connect(sb *sandbox) error {
	u, err := dialShim(sb.dir, shim.SocketName)
	if err != nil {
		return err
	}
	conn := newShimConn(u)
	go conn.read(func(rec wire.Container) { r.noteEvent(sb, rec) })
	ctx, cancel := context.WithTimeout(r.closing, helloTime)
	defer cancel()
	h, err := conn.hello(ctx, wire.Hello, nil)
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
	r.follow(sb, conn)
	return nil
}

// endShim kills a shim that holds its lock and does not answer, when its sandbox is to be stopped anyway.
func (r *Runtime) endShim(sb *sandbox) {
	if p, ok := loadShim(sb.dir); ok {
		r.log.Warn("a shim did not answer and was killed", "sandbox", sb.id, "uid", sb.rec.config.GetMetadata().GetUid(), "pid", p.PID)
		_ = sys.Signal(p, killSignal)
	}
}
