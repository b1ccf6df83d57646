package shim

import (
	"errors"
	"os"
	"syscall"
	"time"

	"monoplane.dev/nodeagent/runtime/host/shimwire"
)

// exec runs one more process in a running container: same user, environment, directory and cgroups. It is over when
// that process ends, at the timeout or when the caller goes away; in the latter cases its process group is killed.
// What it leaves behind belongs to the container.
func (p *pod) exec(req *shimwire.ExecRequest, outputs [2]*os.File, gone <-chan struct{}) shimwire.ExecReply {
	c, err := p.find(req.ContainerID)
	if err == nil {
		<-c.begun
		err = c.running()
	}
	if err != nil {
		return shimwire.ExecReply{Error: err.Error()}
	}
	null, err := os.Open("/dev/null")
	if err != nil {
		return shimwire.ExecReply{Error: err.Error()}
	}
	ended := make(chan syscall.WaitStatus, 1)
	ch := &child{c: c}
	pid, err := p.bearExec(c, req, std{null, outputs[0], outputs[1]}, ch, func(ws syscall.WaitStatus) { ended <- ws })
	null.Close()
	if err != nil {
		return shimwire.ExecReply{Error: err.Error()}
	}
	for _, f := range outputs {
		f.Close()
	}
	// The container may have been emptied between the question and the fork; then nobody looks for more of it.
	if c.running() != nil {
		p.killGroup(pid, ch)
	}
	var limit <-chan time.Time
	if req.Timeout > 0 {
		t := time.NewTimer(time.Duration(req.Timeout))
		defer t.Stop()
		limit = t.C
	}
	timedOut := false
	for {
		select {
		case ws := <-ended:
			code := int64(ws.ExitStatus())
			if ws.Signaled() {
				code = 128 + int64(ws.Signal())
			}
			return shimwire.ExecReply{ExitCode: code, TimedOut: timedOut}
		case <-limit:
			timedOut, limit = true, nil
		case <-gone:
			gone = nil
		}
		p.killGroup(pid, ch)
	}
}

// bearExec starts the process of an Exec in the container's view, with the container's privileges.
func (p *pod) bearExec(
	c *container, req *shimwire.ExecRequest, std std, ch *child, ended func(syscall.WaitStatus),
) (int, error) {
	if !c.req.IsPlain() {
		limit := time.Now().Add(setupTime)
		if req.Timeout > 0 && req.Timeout < int64(setupTime) {
			limit = time.Now().Add(time.Duration(req.Timeout))
		}
		return p.setUp(c, req.Args, std, ch, limit, ended)
	}
	cmd, err := resolve(req.Args, c.req.Env, c.req.Dir)
	if err != nil {
		return 0, err
	}
	ch.ended = ended
	pid, err := p.fork(c, cmd.program(&c.req, std), ch)
	if err != nil {
		return 0, cmd.explain(err)
	}
	return pid, nil
}

func (c *container) running() error {
	select {
	case <-c.dead:
		return errors.New("the container is not running")
	default:
		return nil
	}
}

// killGroup kills the process group that ch leads, if ch is not reaped.
func (p *pod) killGroup(pid int, ch *child) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.children[pid] == ch {
		_ = syscall.Kill(-pid, syscall.SIGKILL)
	}
}
