package shim

import (
	"errors"
	"os"
	"syscall"
	"time"

	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/host/sys"
)

// terminalVariable is what a program on a terminal is told that its container has not.
const terminalVariable = "TERM=xterm"

// exec runs one more process in a running container: same user, environment, directory and cgroups. It is over when
// that process ends, at the timeout or when the caller goes away; in the latter cases it is killed, with its process
// group and all that descends from it. What it leaves behind when it ends belongs to the container. The other ends of
// its outputs are kept open by the shim meanwhile: when those of a caller who goes away are closed, the command would
// end by that, perhaps before the shim could see what descends from it.
func (p *pod) exec(req *shimwire.ExecRequest, files std, gone <-chan struct{}) shimwire.ExecReply {
	c, err := p.find(req.ContainerID)
	if err == nil {
		<-c.begun
		err = c.running()
	}
	if err != nil {
		return shimwire.ExecReply{Error: err.Error()}
	}
	ended := make(chan syscall.WaitStatus, 1)
	ch := &child{c: c, terminal: req.Terminal}
	pid, err := p.bearExec(c, req, files, ch, func(ws syscall.WaitStatus) { ended <- ws })
	if err != nil && p.ends(c) {
		// Its end has taken what there was of the command, as it would have a moment later.
		return shimwire.ExecReply{ExitCode: 128 + int64(syscall.SIGKILL)}
	}
	if err != nil {
		return shimwire.ExecReply{Error: err.Error()}
	}
	files.close()
	defer closeAll(ch.console)
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
		p.killTree(pid, ch)
	}
}

// execFiles are the standard input, output and error of an Exec; one that came without an input has none.
func execFiles(files []*os.File, console bool) (std, error) {
	switch {
	case len(files) == 2 && console:
		return std{files[0], files[1], nil}, nil
	case len(files) == 2:
		null, err := os.Open("/dev/null")
		return std{null, files[0], files[1]}, err
	case len(files) > 2:
		return std(files[:3]), nil
	}
	return std{}, errors.New("two descriptors are needed at least")
}

// bearExec starts the process of an Exec in the container's view, with the container's privileges.
func (p *pod) bearExec(
	c *container, req *shimwire.ExecRequest, std std, ch *child, ended func(syscall.WaitStatus),
) (int, error) {
	if c.req.Bundle != "" {
		return p.bearExecBundle(c, req, std, ch, ended)
	}
	start := c.req
	start.Expiry = 0 // That of the container's own start, which is long over.
	if req.Terminal && !c.req.Terminal {
		start.Env = withTerminal(c.req.Env)
	}
	if !c.req.IsPlain() {
		limit := time.Now().Add(setupTime)
		if req.Timeout > 0 && req.Timeout < int64(setupTime) {
			limit = time.Now().Add(time.Duration(req.Timeout))
		}
		return p.setUp(c, &start, req.Args, std, ch, limit, ended)
	}
	cmd, err := resolve(req.Args, c.req.Env, c.req.Dir)
	if err != nil {
		return 0, err
	}
	ch.ended = ended
	pid, err := p.fork(c, cmd.program(&start, std), ch)
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

// ends tells whether a container that has begun is being ended, or has lost its process 1, reaped or not.
func (p *pod) ends(c *container) bool {
	p.mu.Lock()
	pid := int(c.rec.PID)
	p.mu.Unlock()
	is, err := sys.Stat(pid)
	return c.swept.Load() || errors.Is(err, os.ErrNotExist) || is.State == 'Z'
}

// killGroup kills the process group that ch leads, if ch is not reaped.
func (p *pod) killGroup(pid int, ch *child) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.children[pid] == ch {
		_ = syscall.Kill(-pid, syscall.SIGKILL)
	}
}

// killTree kills what ch is, leads and has brought forth, if ch is not reaped. The list is made first: when a process
// is dead, nobody can tell any more whose children its children were.
func (p *pod) killTree(pid int, ch *child) {
	p.mu.Lock()
	unreaped := p.children[pid] == ch
	p.mu.Unlock()
	if !unreaped {
		return
	}
	list, _ := sys.Descendants([]int{pid}) // What was found of them, if there was an error.
	p.killGroup(pid, ch)
	for _, m := range list {
		if m.PID != pid {
			_ = sys.Signal(m, syscall.SIGKILL)
		}
	}
}

// withTerminal returns an environment in which the kind of the terminal is known.
func withTerminal(env []string) []string {
	const name = "TERM="
	for _, e := range env {
		if len(e) >= len(name) && e[:len(name)] == name {
			return env
		}
	}
	return append(env[:len(env):len(env)], terminalVariable)
}
