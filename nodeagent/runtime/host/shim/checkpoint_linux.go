package shim

import (
	"errors"
	"os"
	"syscall"
	"time"

	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/host/sys"
)

// giveUpTime is how long CRIU may take to leave the processes of a container as they were.
const giveUpTime = 5 * time.Second

// checkpoint has a helper write the processes of a container to files, by CRIU, which it runs. While that works the
// container is frozen, and its processes are traced. However it ends, with an error, a deadline, or a helper that was
// killed, and also when the caller goes away or the container is to be stopped meanwhile, neither helper nor CRIU is
// left, and the container goes on: CRIU is given the time to let go of it, and what is frozen is thawed here.
func (p *pod) checkpoint(req *shimwire.CheckpointRequest, gone <-chan struct{}) shimwire.ExecReply {
	c, err := p.find(req.ContainerID)
	if err == nil {
		<-c.begun
		err = c.running()
	}
	if err == nil && !c.checkpointing.CompareAndSwap(false, true) {
		err = errors.New("another checkpoint of the container is being made")
	}
	if err != nil {
		return shimwire.ExecReply{Error: err.Error()}
	}
	defer c.checkpointing.Store(false)
	null, err := nullStd()
	if err != nil {
		return shimwire.ExecReply{Error: err.Error()}
	}
	defer null.close()
	h, err := p.startHelper(c, &program{outside: true, args: []string{helperArgv0, "checkpoint", c.req.Bundle,
		req.ContainerID, "--", req.Dir, req.Criu}}, null)
	if err != nil {
		return shimwire.ExecReply{Error: err.Error()}
	}
	said := make(chan error, 1)
	go func() {
		_, err := answer(h.conn, time.Time{})
		said <- err
	}()
	limit := time.NewTimer(time.Duration(req.Timeout))
	defer limit.Stop()
	var reply shimwire.ExecReply
	select {
	case err = <-said:
		if errors.Is(err, errHelperEnded) {
			err = errors.New("the process that makes the checkpoint was ended from outside")
		}
	case <-limit.C:
		reply.TimedOut, err = true, errors.New("it was not made in time")
	case <-gone:
		err = errors.New("nobody waits for it any more")
	case <-c.stopping:
		err = errors.New("the container is being stopped")
	}
	if err != nil {
		reply.Error = err.Error()
	}
	h.conn.Close()
	p.endSession(h)
	if err := c.unfreeze(); err != nil {
		complain("the container's cgroup cannot be thawed after a checkpoint", err)
	}
	return reply
}

// endSession ends a helper and what it has left, which is in its session. They may not write to files any more: CRIU
// fails at its next write then, and leaves the processes as they were. If it were killed while it has one execute
// something in its name, that would die, too (by SIGTRAP). So only what does not end in time is killed.
func (p *pod) endSession(h *helping) {
	end := time.Now().Add(giveUpTime)
	for pause := (sys.Pause{}); ; pause.Wait() {
		p.mu.Lock() // Nobody is reaped meanwhile: the list is whole, with all that the helper has left if it is over.
		isOver := isClosed(h.over)
		kids, err := sys.Children(os.Getpid())
		var roots []int
		for _, pid := range kids {
			is, unread := sys.Stat(pid)
			err = errors.Join(err, unread)
			if is.Session == h.pid && (pid != h.pid || !isOver) {
				roots = append(roots, pid) // A dead one, too: what it has left may have come here behind the list.
			}
		}
		p.mu.Unlock()
		if err == nil && len(roots) == 0 && isOver {
			return
		}
		list, _ := sys.Descendants(roots) // What is missed is found the next time.
		for _, m := range list {
			if time.Now().Before(end) {
				_ = sys.StopWriting(m)
			} else {
				_ = sys.Signal(m, syscall.SIGKILL)
			}
		}
	}
}

// unfreeze lets the container go on that the helper has frozen, in whichever freezer.
func (c *container) unfreeze() error {
	err := c.group.Thaw()
	for _, dir := range c.group.V1 {
		state := dir + "/freezer.state"
		if _, missing := os.Stat(state); missing == nil {
			err = errors.Join(err, os.WriteFile(state, []byte("THAWED"), 0))
		}
	}
	return err
}
