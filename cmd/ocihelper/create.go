//go:build linux && cgo

package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// create makes the container, whose process 1 then waits in the exec fifo of its state directory until the shim opens
// that: the shim decides last whether it still may start.
func create(c command) (pid int, err error) {
	var b bundle
	if err := readJSON(c.path(bundleFile), &b); err != nil {
		return 0, err
	}
	if b.Spec == nil || b.Spec.Process == nil || b.Spec.Linux == nil {
		return 0, errors.New("the description of the container is incomplete")
	}
	root, err := c.mountRoot(&b)
	if err != nil {
		return 0, err
	}
	b.Spec.Root = &specs.Root{Path: root, Readonly: b.Spec.Root != nil && b.Spec.Root.Readonly}
	if err := resolveUser(&b, root); err != nil {
		return 0, err
	}
	if err := writeJSON(c.path(processFile), b.Spec.Process); err != nil {
		return 0, err
	}
	if err := os.Chdir(c.bundle); err != nil {
		return 0, err
	}
	ungrouped := b.Spec.Linux.CgroupsPath == ""
	if ungrouped {
		if err := shutGroups(); err != nil {
			return 0, err
		}
	}
	config, err := specconv.CreateLibcontainerConfig(&specconv.CreateOpts{
		CgroupName: c.id, Spec: b.Spec, RootlessCgroups: b.Rootless || ungrouped,
		// The kernel lets a user who is not root have 200 keys only: there the keys are the pod's, see the shim.
		NoNewKeyring: b.Rootless,
	})
	if err != nil {
		return 0, err
	}
	container, err := libcontainer.Create(c.path(stateDir), c.id, config)
	if err != nil {
		return 0, err
	}
	p, err := c.process(b.Spec.Process, b.Spec.Process.Args)
	if err != nil {
		return 0, err
	}
	if err := giveOutput(config, p); err != nil {
		return 0, err
	}
	p.Init = true
	if err := container.Start(p); err != nil {
		return 0, err
	}
	return p.Pid()
}

// execute runs one more process in a container that runs.
func execute(c command) (pid int, err error) {
	var as specs.Process
	if err := readJSON(c.path(processFile), &as); err != nil {
		return 0, err
	}
	if len(c.args) == 0 {
		return 0, errors.New("no command")
	}
	container, err := libcontainer.Load(c.path(stateDir), c.id)
	if err != nil {
		return 0, err
	}
	if c.console && !slices.ContainsFunc(as.Env, func(e string) bool { return strings.HasPrefix(e, "TERM=") }) {
		as.Env = append(as.Env, "TERM=xterm") // As a container with a terminal has from the start.
	}
	p, err := c.process(&as, c.args)
	if err != nil {
		return 0, err
	}
	config := container.Config()
	if err := giveOutput(&config, p); err != nil {
		return 0, err
	}
	if err := container.Start(p); err != nil {
		return 0, err
	}
	return p.Pid()
}

// process describes a process of the container, with the helper's own standard descriptors or a terminal of its own.
func (c command) process(as *specs.Process, args []string) (*libcontainer.Process, error) {
	p := &libcontainer.Process{
		Args: args, Env: as.Env, Cwd: as.Cwd, UID: int(as.User.UID), GID: int(as.User.GID),
		NoNewPrivileges: &as.NoNewPrivileges, AppArmorProfile: as.ApparmorProfile, Label: as.SelinuxLabel,
		Scheduler: as.Scheduler, IOPriority: as.IOPriority,
	}
	for _, g := range as.User.AdditionalGids {
		p.AdditionalGroups = append(p.AdditionalGroups, int(g))
	}
	if caps := as.Capabilities; caps != nil {
		p.Capabilities = &configs.Capabilities{Bounding: caps.Bounding, Effective: caps.Effective,
			Inheritable: caps.Inheritable, Permitted: caps.Permitted, Ambient: caps.Ambient}
	}
	for _, r := range as.Rlimits {
		kind, ok := rlimits[r.Type]
		if !ok {
			return nil, fmt.Errorf("unknown limit %q", r.Type)
		}
		p.Rlimits = append(p.Rlimits, configs.Rlimit{Type: kind, Hard: r.Hard, Soft: r.Soft})
	}
	if c.console {
		p.ConsoleSocket = os.NewFile(consoleFD, "console")
		p.ConsoleWidth, p.ConsoleHeight = c.width, c.height
		return p, nil
	}
	p.Stdin, p.Stdout, p.Stderr = os.Stdin, os.Stdout, os.Stderr
	return p, nil
}

// giveOutput gives the pipes of a process to its user, who may open them anew as /dev/stdout. In a user namespace
// libcontainer cannot: they are nobody's there.
func giveOutput(config *configs.Config, p *libcontainer.Process) error {
	if !config.Namespaces.Contains(configs.NEWUSER) || p.ConsoleSocket != nil {
		return nil
	}
	uid, err := config.HostUID(p.UID)
	if err != nil {
		return err
	}
	gid, err := config.HostGID(p.GID)
	if err != nil {
		return err
	}
	for fd := range 3 {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return os.NewSyscallError("fstat", err)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFIFO {
			continue
		}
		if err := unix.Fchown(fd, uid, gid); err != nil {
			return os.NewSyscallError("fchown", err)
		}
	}
	return nil
}

var rlimits = map[string]int{
	"RLIMIT_CPU": unix.RLIMIT_CPU, "RLIMIT_FSIZE": unix.RLIMIT_FSIZE, "RLIMIT_DATA": unix.RLIMIT_DATA,
	"RLIMIT_STACK": unix.RLIMIT_STACK, "RLIMIT_CORE": unix.RLIMIT_CORE, "RLIMIT_RSS": unix.RLIMIT_RSS,
	"RLIMIT_NPROC": unix.RLIMIT_NPROC, "RLIMIT_NOFILE": unix.RLIMIT_NOFILE, "RLIMIT_MEMLOCK": unix.RLIMIT_MEMLOCK,
	"RLIMIT_AS": unix.RLIMIT_AS, "RLIMIT_LOCKS": unix.RLIMIT_LOCKS, "RLIMIT_SIGPENDING": unix.RLIMIT_SIGPENDING,
	"RLIMIT_MSGQUEUE": unix.RLIMIT_MSGQUEUE, "RLIMIT_NICE": unix.RLIMIT_NICE, "RLIMIT_RTPRIO": unix.RLIMIT_RTPRIO,
}
