package host

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/runtime/host/shim"
	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/host/sys"
)

// A stop that was asked for happens whether the shim answers or not, and whether the caller stays or not:
//
//	asked ──half a margin without a sign of life──► the runtime sends the stop signal itself
//	  │
//	  └──grace and half a margin──► the shim is asked for a sign of life
//	        ├─ it gives one, and process 1 lives: it cannot be killed; that is reported, and asked again later
//	        └─ else ──► condemned: the container is killed; the others get their stop signal and what they have of
//	                    grace; then shim and cgroup are killed, and the sandbox is buried
//
// Half a margin later the stop returns what it knows.

// guard begins or sharpens the watch over a stop.
func (r *Runtime) guard(c *container, timeout time.Duration) {
	at := time.Now().Add(timeout + r.bounds.margin/2)
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.killAt.IsZero() || at.Before(c.killAt) {
		c.killAt = at
		c.pokeLocked()
	}
	if !c.guarded {
		c.guarded = true
		r.startLocked(func() { r.watch(c, timeout > 0) })
	}
}

// unguard ends the watch over a stop that has succeeded.
func (r *Runtime) unguard(c *container) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.killAt = time.Time{}
	c.pokeLocked()
}

func (c *container) pokeLocked() {
	select {
	case c.poke <- struct{}{}:
	default:
	}
}

// watch is the goroutine of guard, one for each container that is being stopped.
func (r *Runtime) watch(c *container, gently bool) {
	if gently {
		deaf := time.AfterFunc(r.bounds.margin/8, func() { r.start(func() { r.signalDeaf(c) }) })
		defer deaf.Stop()
	}
	for {
		r.mu.Lock()
		at := c.killAt
		if at.IsZero() {
			c.guarded = false
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		timer := time.NewTimer(time.Until(at))
		select {
		case <-timer.C:
			if r.alive(c.sb, r.bounds.margin/4) && r.report(c.sb, r.membersOf(c)) {
				r.mu.Lock()
				c.killAt = time.Now().Add(r.bounds.margin)
				r.mu.Unlock()
				continue
			}
			r.condemn(c.sb, false)
		case <-c.poke:
			timer.Stop()
			continue
		case <-c.exited:
		case <-c.sb.gone:
		case <-r.closing.Done():
		}
		timer.Stop()
		return
	}
}

// alive asks the shim of a sandbox for a sign of life.
func (r *Runtime) alive(sb *sandbox, patience time.Duration) bool {
	ctx, cancel := context.WithTimeout(r.closing, patience)
	defer cancel()
	for {
		conn, err := r.shimOf(ctx, sb)
		if err != nil || conn == nil {
			return false
		}
		if _, err := conn.hello(ctx, shimwire.Hello, nil); err == nil {
			return true
		}
		select {
		case <-conn.done:
		case <-ctx.Done():
			return false
		}
	}
}

// signalDeaf sends the stop signal in the place of a shim that gives no sign of life from soon after it was asked to
// stop the container, when one that is well is done mostly, to half a margin. The shim may send the signal once more,
// if it ever goes on.
func (r *Runtime) signalDeaf(c *container) {
	if !r.alive(c.sb, r.bounds.margin*3/8) {
		r.catchUp(c.sb)
		r.signalFirst(c)
	}
}

// catchUp takes in what a shim that does not answer has written down of its containers: that one was started may be
// the very answer that was lost.
func (r *Runtime) catchUp(sb *sandbox) {
	r.mu.RLock()
	list := sb.listLocked()
	r.mu.RUnlock()
	for _, c := range list {
		if rec, err := loadState(c.dir); err == nil {
			r.noteEvent(sb, rec)
		}
	}
}

// signalFirst sends process 1 its stop signal, once. A process that is stopped is let go on, to see the signal.
func (r *Runtime) signalFirst(c *container) {
	r.mu.Lock()
	first, ok := c.firstLocked()
	ok = ok && !c.signaled
	c.signaled = c.signaled || ok
	r.mu.Unlock()
	if !ok {
		return
	}
	sig, _ := stopSignal(c.rec.config.GetStopSignal()) // Checked when the container was created.
	r.log.Warn("a shim does not answer; the stop signal is sent without it", "sandbox", c.sb.id, "container", c.id, "pid",
		first.PID)
	_ = sys.Signal(first, sig)
	if now, err := sys.Stat(first.PID); err == nil && now.State == 'T' {
		_ = sys.Signal(first, unix.SIGCONT)
	}
}

// firstLocked is process 1 of a container that may run.
func (c *container) firstLocked() (sys.Proc, bool) {
	p := sys.Proc{PID: int(c.state.PID), Start: uint64(c.state.Born)}
	return p, p.PID > 0 && p.Start > 0 && c.state.Phase != shimwire.Created && c.state.Phase != shimwire.Exited
}

// membersOf lists what is known to live of a container, from outside its shim.
func (r *Runtime) membersOf(c *container) []sys.Proc {
	r.mu.RLock()
	first, ok := c.firstLocked()
	r.mu.RUnlock()
	if ok && sys.IsAlive(first) {
		list, _ := sys.Descendants([]int{first.PID}) // A list for people, and for KILL.
		return list
	}
	return nil
}

// report keeps what is left of a sandbox for the errors of those who wait, and tells whether anything is.
func (r *Runtime) report(sb *sandbox, left []sys.Proc) bool {
	what := describe(left)
	r.mu.Lock()
	defer r.mu.Unlock()
	sb.trouble = what
	return what != ""
}

// stuck is the error of a stop or removal that has taken too long.
func (r *Runtime) stuck(sb *sandbox) error {
	r.mu.RLock()
	what, p, condemned := sb.trouble, sb.shim, sb.condemned
	r.mu.RUnlock()
	if now, err := sys.Stat(p.PID); what == "" && sys.IsAlive(p) && err == nil {
		what = now.String()
	}
	if what == "" {
		what = "not known yet"
	}
	if condemned {
		return unavailable("sandbox %s has not ended yet, because its shim does not answer and what is left of it could "+
			"not be killed so far; left: %s", sb.id, what)
	}
	return unavailable("sandbox %s has not ended yet; left: %s", sb.id, what)
}

// condemn ends a sandbox whose shim does not do it. At once kills all of it without a grace.
func (r *Runtime) condemn(sb *sandbox, atOnce bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sb.isGone() || r.closing.Err() != nil || sb.rec.damaged { // discard is at it.
		return
	}
	sb.ending = true
	if atOnce && !isClosed(sb.atOnce) {
		close(sb.atOnce)
	}
	if sb.condemned {
		return
	}
	sb.condemned = true
	r.log.Warn("a shim does not answer; its sandbox is ended without it", "sandbox", sb.id,
		"uid", sb.rec.config.GetMetadata().GetUid(), "pid", sb.shim.PID)
	r.startLocked(func() { r.execute(sb) })
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// execute carries out condemn. When the shim is dead, tend finds its lock free and buries the sandbox.
func (r *Runtime) execute(sb *sandbox) {
	r.catchUp(sb)
	r.lastGrace(sb)
	var pause time.Duration
	for !sb.isGone() {
		left, err := r.killShim(sb)
		if err != nil {
			r.log.Error("a sandbox cannot be ended yet", "sandbox", sb.id, "error", err)
		}
		if len(left) > 0 {
			r.report(sb, left) // Without a shim it is bury that reports.
		}
		if !r.nap(&pause) {
			return
		}
	}
}

// lastGrace kills the containers whose grace is over and gives the others theirs, since the death of the shim is
// theirs too: what an earlier stop has granted, else half a margin.
func (r *Runtime) lastGrace(sb *sandbox) {
	until := time.Now()
	var waited []*container
	r.mu.RLock()
	list := sb.listLocked()
	r.mu.RUnlock()
	for _, c := range list {
		r.mu.RLock()
		_, runs := c.firstLocked()
		at := c.killAt
		r.mu.RUnlock()
		switch {
		case !runs:
			continue
		case !at.IsZero() && !at.After(time.Now()) || isClosed(sb.atOnce):
			_ = c.rec.group.Kill()
			for _, p := range r.membersOf(c) {
				_ = sys.Signal(p, killSignal)
			}
			continue
		case at.IsZero():
			at = time.Now().Add(r.bounds.margin / 2)
		}
		r.signalFirst(c)
		waited = append(waited, c)
		if at.After(until) {
			until = at
		}
	}
	var pause time.Duration
	for time.Now().Before(until) && !sb.isGone() && !isClosed(sb.atOnce) {
		alive := false
		for _, c := range waited {
			alive = alive || len(r.membersOf(c)) > 0
		}
		if !alive || !r.nap(&pause) {
			return
		}
	}
}

// killShim kills the shim and, with it or by their cgroup, what it has started. It returns what holds the sandbox's
// lock still.
func (r *Runtime) killShim(sb *sandbox) ([]sys.Proc, error) {
	r.mu.RLock()
	p := sb.shim
	r.mu.RUnlock()
	if p.PID == 0 {
		p, _ = loadShim(sb.dir)
	}
	left := []sys.Proc{}
	if sys.IsAlive(p) {
		left = append(left, p)
	} else {
		var err error
		if left, err = lockHolders(sb.dir); err != nil {
			return nil, err
		}
	}
	err := sb.rec.group.Kill()
	for i, p := range left {
		_ = sys.Signal(p, killSignal)
		if now, err := sys.Stat(p.PID); err == nil && now.Start == p.Start {
			left[i] = now
		}
	}
	return left, err
}

// wakeShims lets shims go on that somebody has stopped: a container may do that to its own shim (kill -STOP $PPID),
// which would then neither notice its end nor stop it with its grace. A debugger's stop is left alone.
func (r *Runtime) wakeShims() {
	tick := time.NewTicker(r.bounds.wake)
	defer tick.Stop()
	const quiet = time.Minute
	said := map[string]time.Time{}
	for {
		select {
		case <-tick.C:
		case <-r.closing.Done():
			return
		}
		r.mu.RLock()
		var list []*sandbox
		for _, sb := range r.sandboxes {
			if !sb.isGone() && sb.shim.PID != 0 {
				list = append(list, sb)
			}
		}
		r.mu.RUnlock()
		for id, at := range said {
			if time.Since(at) > quiet {
				delete(said, id)
			}
		}
		for _, sb := range list {
			p := sb.shim // It is set before the sandbox is known to others, and never changes.
			now, err := sys.Stat(p.PID)
			if err != nil || now.Start != p.Start || now.State != 'T' {
				continue
			}
			if _, ok := said[sb.id]; !ok {
				said[sb.id] = time.Now()
				r.log.Warn("a shim was stopped by a signal and is let go on", "name", shim.Argv0, "sandbox", sb.id,
					"uid", sb.rec.config.GetMetadata().GetUid(), "pid", p.PID)
			}
			_ = sys.Signal(p, unix.SIGCONT)
		}
	}
}
