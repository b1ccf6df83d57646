package spec

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// DefaultPath is the PATH of containers whose image has none.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// ErrNoCommand says that neither the pod nor the image names a command.
var ErrNoCommand = errors.New("no command specified: neither the pod nor the image has one")

// Container returns the bundle of a container, without its layers. The error is the user's to mend, and names the
// field of CRI.
func Container(in Input) (*Bundle, error) {
	config := in.Container
	sec := config.GetLinux().GetSecurityContext()
	args, err := Command(config, in.Image)
	if err != nil {
		return nil, err
	}
	b := &Bundle{Rootless: in.Rootless}
	p := &specs.Process{
		Args: args, Env: environment(in), Cwd: first(config.GetWorkingDir(), in.Image.WorkingDir, "/"),
		Terminal: config.GetTty(), NoNewPrivileges: sec.GetNoNewPrivs(),
		ApparmorProfile: in.AppArmor,
	}
	if p.Cwd[0] != '/' {
		p.Cwd = "/" + p.Cwd // Some images have it so.
	}
	b.Spec = &specs.Spec{
		Version: specs.Version, Process: p, Root: &specs.Root{Readonly: sec.GetReadonlyRootfs()},
		Linux: &specs.Linux{CgroupsPath: in.CgroupPath, Namespaces: namespaces(in)},
	}
	if err := b.user(in); err != nil {
		return nil, err
	}
	if p.Capabilities, err = capabilities(in); err != nil {
		return nil, err
	}
	if err := b.users(in); err != nil {
		return nil, err
	}
	if err := b.mounts(in); err != nil {
		return nil, err
	}
	if err := b.devices(in); err != nil {
		return nil, err
	}
	if !sec.GetPrivileged() {
		b.Spec.Linux.MaskedPaths, b.Spec.Linux.ReadonlyPaths = sec.GetMaskedPaths(), sec.GetReadonlyPaths()
	}
	b.resources(in)
	if b.Spec.Linux.Seccomp, err = seccompOf(sec, b.Spec); err != nil {
		return nil, err
	}
	return b, nil
}

// Command is what is executed: the pod's command takes the place of the image's entrypoint and of its arguments too,
// its arguments that of the image's.
func Command(config *runtimeapi.ContainerConfig, image Image) ([]string, error) {
	var args []string
	switch {
	case len(config.GetCommand()) > 0:
		args = slices.Concat(config.GetCommand(), config.GetArgs())
	case len(config.GetArgs()) > 0:
		args = slices.Concat(image.Entrypoint, config.GetArgs())
	default:
		args = slices.Concat(image.Entrypoint, image.Cmd)
	}
	if len(args) == 0 || args[0] == "" {
		return nil, ErrNoCommand
	}
	return args, nil
}

// environment is what the runtime sets, what the image sets and what the pod sets, each over the one before.
func environment(in Input) []string {
	var env []string
	at := map[string]int{}
	set := func(e string) {
		name, _, _ := strings.Cut(e, "=")
		if i, ok := at[name]; ok {
			env[i] = e
			return
		}
		at[name] = len(env)
		env = append(env, e)
	}
	set("PATH=" + DefaultPath)
	if name := first(in.Sandbox.GetHostname(), in.MachineName); name != "" {
		set("HOSTNAME=" + name)
	}
	if in.Container.GetTty() {
		set("TERM=xterm")
	}
	for _, e := range in.Image.Env {
		if strings.Contains(e, "=") { // Some images have names without a value, which no process can be given.
			set(e)
		}
	}
	for _, kv := range in.Container.GetEnvs() {
		set(kv.GetKey() + "=" + string(kv.GetValue()))
	}
	return env
}

// user names the user for the helper to look up: the pod's, else the image's. As CRI has it, a group without a user is
// an error.
func (b *Bundle) user(in Input) error {
	sec := in.Container.GetLinux().GetSecurityContext()
	b.User = first(in.Image.User, "0")
	named := false
	switch {
	case sec.GetRunAsUser() != nil:
		b.User, named = strconv.FormatInt(sec.GetRunAsUser().GetValue(), 10), true
	case sec.GetRunAsUsername() != "":
		b.User, named = sec.GetRunAsUsername(), true
	}
	if g := sec.GetRunAsGroup(); g != nil {
		if !named {
			return errors.New("run_as_group needs run_as_user or run_as_username")
		}
		b.GroupsOf = b.User
		b.User += ":" + strconv.FormatInt(g.GetValue(), 10)
	}
	for _, g := range sec.GetSupplementalGroups() {
		b.Spec.Process.User.AdditionalGids = append(b.Spec.Process.User.AdditionalGids, uint32(g))
	}
	b.StrictGroups = sec.GetSupplementalGroupsPolicy() == runtimeapi.SupplementalGroupsPolicy_Strict
	return nil
}

// namespaces are those of the sandbox, by the processes that hold them, and the container's own.
func namespaces(in Input) []specs.LinuxNamespace {
	options := in.Container.GetLinux().GetSecurityContext().GetNamespaceOptions()
	of := func(pid int, name string) string { return fmt.Sprintf("/proc/%d/ns/%s", pid, name) }
	out := []specs.LinuxNamespace{{Type: specs.MountNamespace}}
	if options.GetIpc() != runtimeapi.NamespaceMode_NODE {
		out = append(out, specs.LinuxNamespace{Type: specs.IPCNamespace, Path: of(in.Shim, "ipc")})
	}
	out = append(out, specs.LinuxNamespace{Type: specs.UTSNamespace, Path: of(in.Shim, "uts")})
	if in.OwnNetwork {
		out = append(out, specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: of(in.Shim, "net")})
	}
	switch pid := processes(in); {
	case pid == runtimeapi.NamespaceMode_NODE:
	case pid == runtimeapi.NamespaceMode_POD && in.Init != 0:
		out = append(out, specs.LinuxNamespace{Type: specs.PIDNamespace, Path: of(in.Init, "pid")})
	case pid == runtimeapi.NamespaceMode_TARGET && in.Target != 0:
		out = append(out, specs.LinuxNamespace{Type: specs.PIDNamespace, Path: of(in.Target, "pid")})
	default:
		out = append(out, specs.LinuxNamespace{Type: specs.PIDNamespace})
	}
	if ownCgroups(in) {
		out = append(out, specs.LinuxNamespace{Type: specs.CgroupNamespace})
	}
	return out
}

// processes tells whose processes a container sees. It shares those of its sandbox, unless it asks for others, and the
// sandbox may have the machine's.
func processes(in Input) runtimeapi.NamespaceMode {
	mode := in.Container.GetLinux().GetSecurityContext().GetNamespaceOptions().GetPid()
	sandbox := in.Sandbox.GetLinux().GetSecurityContext().GetNamespaceOptions().GetPid()
	if mode == runtimeapi.NamespaceMode_POD && sandbox == runtimeapi.NamespaceMode_NODE {
		return sandbox
	}
	return mode
}

// ownCgroups tells whether a container sees its own cgroup, and those below, instead of the whole tree. In cgroup v1
// the containers of other runtimes see the whole tree too.
func ownCgroups(in Input) bool {
	return in.Unified && !in.Container.GetLinux().GetSecurityContext().GetPrivileged()
}

// OwnUsers tells whether users are the pod's own.
func OwnUsers(u *runtimeapi.UserNamespace) bool {
	return u != nil && u.GetMode() == runtimeapi.NamespaceMode_POD
}

// users has the container join the user namespace of a pod that has users of its own. The others of the sandbox belong
// to that one, and so do those that the container gets.
//
// spec: USER-1
func (b *Bundle) users(in Input) error {
	u := in.Container.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions()
	switch {
	case !OwnUsers(u) && in.Users != 0:
		return errors.New("userns_options: the containers of a pod that has a user namespace are in that one")
	case !OwnUsers(u):
		return nil
	case len(u.GetUids()) == 0 || len(u.GetGids()) == 0:
		return errors.New("userns_options: a user namespace of the pod needs uids and gids")
	case in.Users == 0:
		return errors.New("userns_options: the sandbox has no user namespace")
	}
	b.Users = fmt.Sprintf("/proc/%d/fd/%d", in.Shim, in.Users)
	b.UIDs, b.GIDs = mappings(u.GetUids()), mappings(u.GetGids())
	l := b.Spec.Linux
	l.Namespaces = append(l.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace, Path: b.Users})
	return nil
}

func mappings(in []*runtimeapi.IDMapping) []specs.LinuxIDMapping {
	var out []specs.LinuxIDMapping
	for _, m := range in {
		out = append(out, specs.LinuxIDMapping{ContainerID: m.GetContainerId(), HostID: m.GetHostId(), Size: m.GetLength()})
	}
	return out
}

// resources are those that package cgroup does not set: preferences of cgroup v1. The limits are set before the
// container is made.
func (b *Bundle) resources(in Input) {
	res := in.Container.GetLinux().GetResources()
	if b.Spec.Linux.Resources == nil {
		b.Spec.Linux.Resources = &specs.LinuxResources{}
	}
	if n := res.GetCpuShares(); n > 1 && !in.Unified && !in.Rootless {
		shares := uint64(n)
		b.Spec.Linux.Resources.CPU = &specs.LinuxCPU{Shares: &shares}
	}
}

func first(all ...string) string {
	for _, s := range all {
		if s != "" {
			return s
		}
	}
	return ""
}
