package shim

import (
	"syscall"
)

// reap reaps every child, adopted orphans included, for as long as the shim lives.
func (p *pod) reap() {
	for {
		pid, err := nextDead()
		if err != nil {
			<-p.forked // There is no child at all, and orphans come from children only.
			continue
		}
		p.mu.Lock()
		ch := p.children[pid]
		if ch != nil && ch.first {
			// The zombie still holds the pid, so this is the container's own process group, and the kernel walks a
			// group without letting anything fork out of it.
			_ = syscall.Kill(-pid, syscall.SIGKILL)
		}
		var status syscall.WaitStatus
		got, err := syscall.Wait4(pid, &status, syscall.WNOHANG|waitClones, nil)
		if err == nil && got == pid {
			delete(p.children, pid)
			p.reaps.Add(1)
		} else {
			ch = nil
		}
		p.mu.Unlock()
		if ch != nil {
			ch.ended(status)
		}
	}
}
