package shim

import (
	"errors"
	"os"
	"strconv"
	"syscall"

	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/host/sys"
	"monoplane.dev/nodeagent/runtime/host/view"
)

// A pod with users of its own has a user namespace that owns its others, so that root in its containers may set up
// the pod's network, host name and memory that is shared, and nobody else's. The shim itself stays outside: it has
// the pod's directory, logs and cgroups, which are the machine's.
//
//	shim                            holder (the helper)
//	fork with all namespaces ─────► root of them: sets what only their root may set
//	        ◄── "ok" ──────────────
//	opens its user namespace, joins the others
//	closes the socket ────────────► ends, unless it is the process 1 that the containers share
//
// So /proc/SHIM/ns has the pod's namespaces, as with other pods, and the user namespace is a descriptor of the shim's:
// nothing is bound anywhere, and nothing is left when the shim is killed.

// ownUsers makes the user namespace of the pod and those that it owns, and gives the latter to the main thread.
func (p *pod) ownUsers(req *shimwire.InitRequest) error {
	uids, err := idMap(req.UIDs)
	if err != nil {
		return err
	}
	gids, err := idMap(req.GIDs)
	if err != nil {
		return err
	}
	attr := &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		UidMappings: uids, GidMappings: gids, GidMappingsEnableSetgroups: true,
		Credential: &syscall.Credential{},
	}
	joined := []string{"uts", "ipc"}
	if req.OwnNetwork {
		attr.Cloneflags |= syscall.CLONE_NEWNET
		joined = append(joined, "net")
	}
	args := []string{"hold"}
	if req.SharePID {
		attr.Cloneflags |= syscall.CLONE_NEWPID | syscall.CLONE_NEWNS
		args[0] = "pause"
	}
	for _, s := range req.Sysctls {
		name := []byte(s)
		if i := sys.Index(s, "="); i > 0 {
			swapSeparators(name[:i])
		}
		args = append(args, string(name))
	}
	p.onMain(ownKeys)
	pid, conn, err := p.bearHolder(args, attr)
	if err != nil {
		return errors.New("no user namespace can be made for the pod: " + err.Error())
	}
	if err = p.takeNamespaces(pid, joined, req); err != nil || !req.SharePID {
		_ = syscall.Close(conn) // The holder ends by that, and the namespaces are the shim's alone.
	} else {
		p.init1 = pid
	}
	return err
}

// takeNamespaces opens the user namespace of a process, and joins its others with the main thread.
func (p *pod) takeNamespaces(pid int, joined []string, req *shimwire.InitRequest) error {
	dir := "/proc/" + strconv.Itoa(pid) + "/ns/"
	users, err := os.Open(dir + "user")
	if err != nil {
		return err
	}
	for _, name := range joined {
		ns, err := os.Open(dir + name)
		if err == nil {
			p.onMain(func() { err = view.Enter(int(ns.Fd())) })
			ns.Close()
		}
		if err != nil {
			users.Close()
			return errors.New("the pod's namespace " + name + " cannot be joined: " + err.Error())
		}
	}
	p.users = users
	p.onMain(func() {
		if req.Hostname != "" {
			err = syscall.Sethostname([]byte(req.Hostname))
		}
		if err == nil && req.OwnNetwork {
			err = loopbackUp()
		}
	})
	return err
}

// idMap reads lines of uid_map.
func idMap(lines []string) ([]syscall.SysProcIDMap, error) {
	var out []syscall.SysProcIDMap
	for _, l := range lines {
		var n [3]int
		f := sys.Fields(l)
		if len(f) != len(n) {
			return nil, errors.New("no range of ids: " + l)
		}
		for i := range n {
			var err error
			if n[i], err = strconv.Atoi(f[i]); err != nil {
				return nil, errors.New("no range of ids: " + l)
			}
		}
		out = append(out, syscall.SysProcIDMap{ContainerID: n[0], HostID: n[1], Size: n[2]})
	}
	return out, nil
}

// ownerOptions make a mount of memory that of the pod's root.
func ownerOptions(req *shimwire.InitRequest) string {
	options := ""
	for _, of := range [2]struct {
		name  string
		lines []string
	}{{"uid", req.UIDs}, {"gid", req.GIDs}} {
		for _, l := range of.lines {
			if f := sys.Fields(l); len(f) == 3 && f[0] == "0" {
				options += "," + of.name + "=" + f[1]
			}
		}
	}
	return options
}
