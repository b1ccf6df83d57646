package shim

import (
	"os"
	"slices"
	"syscall"
	"time"

	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/host/sys"
)

const (
	// drainTime is how long the pipes are read after the last process of the container is gone. They are at their end
	// by then, unless a process outside the container was handed the other end.
	drainTime = time.Second
	// retryJournal is the time between attempts to record an exit on a disk that refuses it.
	retryJournal = time.Second
)

// stop sends the stop signal, unless it was sent before, and returns when nothing is left of the container. The
// deadline is the earliest that any stop has asked for (TERM-3); it stands even when the caller goes away. A runtime
// that comes after the one that asked begins the stop anew, with its whole grace (DEL-10), and one whose connection
// broke goes on with the stop that it had begun. Asker is closed when the caller's connection is gone.
func (p *pod) stop(c *container, req *shimwire.StopRequest, asker <-chan struct{}) {
	timeout := time.Duration(req.Timeout)
	<-c.begun
	p.mu.Lock()
	if !isClosed(c.stopping) {
		close(c.stopping)
	}
	deadline := time.Now().Add(max(timeout, 0))
	if c.rec.Phase == shimwire.Running {
		if asker != c.asker && isClosed(c.asker) && (req.Begun == 0 || req.Begun > c.signaled) {
			c.deadline, c.signaled = time.Time{}, 0
		}
		c.asker = asker
		if c.deadline.IsZero() || deadline.Before(c.deadline) {
			c.deadline = deadline
			if c.timer != nil {
				c.timer.Stop()
			}
			c.timer = time.AfterFunc(timeout, func() { p.kill(c) })
		}
		if timeout > 0 && c.signaled == 0 {
			c.signaled = sys.BootTime()
			p.signalFirstLocked(c, c.stopSignal())
			p.wakeFirstLocked(c)
		}
	}
	p.mu.Unlock()
	<-c.done
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false // also when c is nil
	}
}

func (c *container) stopSignal() syscall.Signal {
	if c.req.StopSignal > 0 && c.req.StopSignal <= 64 {
		return syscall.Signal(c.req.StopSignal)
	}
	return syscall.SIGTERM
}

// signalFirstLocked signals process 1 if it is not reaped.
func (p *pod) signalFirstLocked(c *container, sig syscall.Signal) {
	if ch := p.children[int(c.rec.PID)]; ch != nil && ch.c == c && ch.first {
		_ = syscall.Kill(int(c.rec.PID), sig)
	}
}

// wakeFirstLocked lets process 1 go on if it is stopped or frozen, because the stop signal waits until it does: it
// would be killed at the end of a grace that it has not seen.
func (p *pod) wakeFirstLocked(c *container) {
	if err := c.group.Thaw(); err != nil {
		complain("the container's cgroup cannot be thawed", err)
	}
	if now, err := sys.Stat(int(c.rec.PID)); err == nil && now.State == 'T' {
		p.signalFirstLocked(c, syscall.SIGCONT)
	}
}

// kill ends everything in the container, now.
func (p *pod) kill(c *container) {
	p.mu.Lock()
	if ch := p.children[int(c.rec.PID)]; ch != nil && ch.c == c && ch.first {
		_ = syscall.Kill(-int(c.rec.PID), syscall.SIGKILL)
	}
	p.mu.Unlock()
	p.sweep(c)
}

// sweep begins to end what is in the container, unless that has begun.
func (p *pod) sweep(c *container) {
	if c.swept.CompareAndSwap(false, true) {
		go p.end(c)
	}
}

// end kills whatever is in the container until nothing is left, then records the exit. It gives up never: a process
// that cannot be killed (waiting for a dead disk, say) keeps the container from being reported gone.
func (p *pod) end(c *container) {
	<-c.begun
	var pause sys.Pause
	for !p.emptied(c) {
		pause.Wait()
	}
	<-c.dead
	p.finish(c)
}

// emptied kills what it finds in the container and tells whether there was nothing.
func (p *pod) emptied(c *container) bool {
	populated, err := c.group.Populated()
	if err != nil {
		complain("cannot read cgroup.events", err)
		populated = sys.Exhausted(err) // Else descent decides.
	}
	if populated {
		if err := c.group.Kill(); err != nil {
			complain("cannot write cgroup.kill", err)
		}
	}
	reaps := p.reaps.Load()
	members, sure := p.members(c)
	for _, m := range members {
		_ = sys.Signal(m, syscall.SIGKILL)
	}
	// Reaping while the list was read can have hidden something: look again.
	return !populated && sure && len(members) == 0 && reaps == p.reaps.Load()
}

// members lists the live processes of c: process 1, processes run in it by Exec, orphans that came from it, and all
// that descends from them. It is not sure when the list could not be read, and when an orphan came while it was: a
// process whose parent dies moves from a place that was not read yet to one that was read already.
func (p *pod) members(c *container) (list []sys.Proc, sure bool) {
	p.mu.Lock()
	kids, err := sys.Children(os.Getpid())
	live := 0
	for _, other := range p.containers {
		if other.rec.Phase != shimwire.Exited {
			live++
		}
	}
	var roots, orphans []int
	for _, pid := range kids {
		ch := p.children[pid]
		switch {
		case ch == nil:
			orphans = append(orphans, pid)
		case ch.c != nil && ch.c == c:
			roots = append(roots, pid)
		}
	}
	p.mu.Unlock()
	for _, pid := range orphans {
		m, unread := sys.MarkerOf(pid)
		if unread != nil {
			err = unread
		}
		// An orphan that has changed its marker can be told by its descent only while there is one container.
		if m == c.marker || live == 1 && m.Pod() != p.marker {
			roots = append(roots, pid)
		}
	}
	inherited, unread := p.orphans(c)
	if unread != nil {
		err = unread
	}
	roots = append(roots, inherited...)
	list, unread = sys.Descendants(roots)
	if unread != nil {
		err = unread
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now, again := sys.Children(os.Getpid())
	for _, pid := range now {
		if !slices.Contains(kids, pid) {
			return list, false
		}
	}
	return list, err == nil && again == nil
}

// finish makes the exit known: output in the log, journal on the disk, then everyone who waits.
func (p *pod) finish(c *container) {
	if c.peer != nil {
		_ = c.peer.Close() // What reads the other end comes to its end by that.
	}
	cut := time.Now().Add(drainTime)
	for _, f := range c.outputs {
		_ = f.SetReadDeadline(cut)
	}
	c.copies.Wait()
	c.closeStd()
	oom := c.group.OOMKills() > 0
	if err := c.group.Remove(); err != nil {
		complain("cannot remove the container's cgroup", err)
	}
	p.mu.Lock()
	if c.timer != nil {
		c.timer.Stop()
	}
	if oom && c.rec.Signal == int64(syscall.SIGKILL) {
		c.rec.Reason = shimwire.ReasonOOMKilled
	}
	rec := c.recordLocked()
	rec.Phase = shimwire.Exited
	p.mu.Unlock()
	_ = c.log.Close()
	if err := shimwire.Append(c.journal(), rec.Encode(), true); err != nil {
		complain("an exit could not be recorded", err)
		rec.Warnings = append(rec.Warnings, "the exit could not be written to the disk: "+err.Error())
		go keepTrying(c.journal(), rec)
	}
	p.mu.Lock()
	c.rec = rec
	p.mu.Unlock()
	close(c.done)
	p.broadcast(c)
}

// keepTrying records an exit as soon as the disk lets it. Until then the shim's memory has it.
func keepTrying(journal string, rec shimwire.Container) {
	for {
		time.Sleep(retryJournal)
		err := shimwire.Append(journal, rec.Encode(), true)
		if err == nil || os.IsNotExist(err) {
			return
		}
	}
}
