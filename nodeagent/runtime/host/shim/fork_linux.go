package shim

import (
	"errors"
	"os"
	"strconv"
	"syscall"

	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/host/sys"
)

// fork starts cmd in the container's cgroups, session of its own, and enters it among the children. It runs on the
// main thread and is over when the new process has executed its command, or failed to.
func (p *pod) fork(c *container, cmd *command, outputs [2]*os.File, ch *child) (pid int, err error) {
	null, err := os.Open("/dev/null")
	if err != nil {
		return 0, err
	}
	defer null.Close()
	attr := &syscall.ProcAttr{
		Dir:   c.req.Dir,
		Env:   c.req.Env,
		Files: []uintptr{null.Fd(), outputs[0].Fd(), outputs[1].Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, Credential: credential(&c.req)},
	}
	if c.group.Unified != "" {
		dir, err := os.Open(c.group.Unified)
		if err != nil {
			return 0, errors.New("the container's cgroup cannot be opened: " + err.Error())
		}
		defer dir.Close()
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(dir.Fd())
	}
	p.onMain(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.closing {
			err = errors.New("the sandbox is being stopped")
			return
		}
		// The last moment at which the answer is certain. A shim that is paused from here on forks late all the same,
		// which is why nobody but this shim may say that a container has expired: a clock alone proves nothing.
		if ch.first {
			if err = c.expired(); err != nil {
				return
			}
		}
		if err = joinV1(c.group.V1); err != nil {
			return
		}
		restore := p.dress(c)
		pid, err = syscall.ForkExec(cmd.path, cmd.args, attr)
		restore()
		leaveV1(c.group.V1)
		if err == nil {
			p.children[pid] = ch
			p.score(c, pid)
		}
	})
	select {
	case p.forked <- struct{}{}:
	default:
	}
	return pid, err
}

// dress gives the shim what the child is to inherit, and returns how to take it off again.
func (p *pod) dress(c *container) (restore func()) {
	_ = sys.SetMarker(c.marker)
	if !p.anyScore {
		return func() { _ = sys.SetMarker(p.marker) }
	}
	score := p.defaultScore
	if c.req.SetOOMScoreAdj {
		score = int(c.req.OOMScoreAdj)
	}
	_ = setOOMScoreAdj("self", score)
	return func() {
		_ = setOOMScoreAdj("self", shimOOMScoreAdj)
		_ = sys.SetMarker(p.marker)
	}
}

// score sets the score of a new child where the shim may only raise it: its own could not be lowered again.
func (p *pod) score(c *container, pid int) {
	if !p.anyScore && c.req.SetOOMScoreAdj && int(c.req.OOMScoreAdj) != p.defaultScore {
		_ = setOOMScoreAdj(strconv.Itoa(pid), int(c.req.OOMScoreAdj))
	}
}

func credential(req *shimwire.StartRequest) *syscall.Credential {
	if !req.SetUser {
		return nil
	}
	cred := &syscall.Credential{Uid: uint32(req.UID), Gid: uint32(req.GID)}
	for _, g := range req.Groups {
		cred.Groups = append(cred.Groups, uint32(g))
	}
	return cred
}

// joinV1 moves this thread, and so the child that it is about to fork, into cgroup v1 directories. Only cgroup2 can
// take a child in as it is forked.
func joinV1(dirs []string) error {
	for _, d := range dirs {
		if err := os.WriteFile(d+"/tasks", []byte("0"), 0); err != nil {
			return errors.New("the container's cgroup cannot be joined: " + err.Error())
		}
	}
	return nil
}

// leaveV1 moves the thread to the pod's directory, the parent of the container's.
func leaveV1(dirs []string) {
	for _, d := range dirs {
		if i := sys.LastByte(d, '/'); i > 0 {
			if err := os.WriteFile(d[:i]+"/tasks", []byte("0"), 0); err != nil {
				complain("the shim cannot leave a container's cgroup", err)
			}
		}
	}
}

type pipe struct{ read, write *os.File }

// newPipe makes a pipe whose reading end does not block a thread, and whose writing end the container's user may open
// by its name in /dev.
func newPipe(req *shimwire.StartRequest) (pipe, error) {
	var fd [2]int
	if err := syscall.Pipe2(fd[:], syscall.O_CLOEXEC); err != nil {
		return pipe{}, os.NewSyscallError("pipe2", err)
	}
	if req.SetUser {
		_ = syscall.Fchown(fd[1], int(req.UID), int(req.GID))
	}
	_ = syscall.SetNonblock(fd[0], true)
	return pipe{read: os.NewFile(uintptr(fd[0]), "output"), write: os.NewFile(uintptr(fd[1]), "output")}, nil
}
