package shim

import (
	"errors"
	"os"
	"syscall"

	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/host/sys"
)

// program is what a fork executes.
type program struct {
	path  string
	args  []string
	env   []string
	dir   string
	files []uintptr
	cred  *syscall.Credential
	caps  []uintptr // What a process that is not of root's keeps, for the sake of the mounts.
	// outside leaves the process in the shim's own cgroup: it makes containers, and is no part of one.
	outside bool
	flags   uintptr // The namespaces that it gets, such as CLONE_NEWNS.
}

// fork starts a program in the container's cgroups, in a session of its own, and enters it among the children. It
// runs on the main thread and is over when the new process has executed the program, or failed to.
func (p *pod) fork(c *container, what *program, ch *child) (pid int, err error) {
	attr := &syscall.ProcAttr{
		Dir:   what.dir,
		Env:   what.env,
		Files: what.files,
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, Credential: what.cred,
			AmbientCaps: what.caps, Setctty: ch.terminal, // By its standard input.
			Cloneflags: what.flags},
	}
	if !ch.first && !what.outside {
		// A fork into a frozen group would not return, and with it the shim.
		if err := c.group.Thaw(); err != nil {
			complain("the container's cgroup cannot be thawed", err)
		}
	}
	var v1 []string
	if !what.outside || c.req.Joins { // A container of another user could not be moved there later.
		v1 = c.group.V1
	}
	if c.group.Unified != "" && !what.outside {
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
			if err = expired(c.req.Expiry); err != nil {
				return
			}
		}
		if err = joinV1(v1); err != nil {
			return
		}
		restore := p.dress(c)
		pid, err = syscall.ForkExec(what.path, what.args, attr)
		restore()
		leaveV1(v1)
		if err == nil {
			p.children[pid] = ch
		}
	})
	select {
	case p.forked <- struct{}{}:
	default:
	}
	return pid, err
}

// dress gives the shim what the child is to inherit, and returns how to take it off again. A child that was given its
// score later could have made processes by then: a helper makes the container.
func (p *pod) dress(c *container) (restore func()) {
	_ = sys.SetMarker(c.marker)
	score, own := p.defaultScore, p.defaultScore
	if p.anyScore {
		own = shimOOMScoreAdj
	}
	if c.req.SetOOMScoreAdj {
		score = int(c.req.OOMScoreAdj)
	}
	if score != own {
		_ = setOOMScoreAdj(score) // Where the shim may only raise it, the kernel takes it back to what it was.
	}
	return func() {
		if score != own {
			_ = setOOMScoreAdj(own)
		}
		_ = sys.SetMarker(p.marker)
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
