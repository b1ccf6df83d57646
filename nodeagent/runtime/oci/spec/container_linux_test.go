package spec

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// all are the capabilities of root on a machine that knows 41 of them.
const all = uint64(1)<<41 - 1

// asked is a container of an image that asks for something.
func asked(change ...func(in *Input)) Input {
	in := Input{
		Sandbox: &runtimeapi.PodSandboxConfig{Hostname: "pod"},
		Container: &runtimeapi.ContainerConfig{Linux: &runtimeapi.LinuxContainerConfig{
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{
				Pid: runtimeapi.NamespaceMode_CONTAINER}}}},
		Image: Image{Cmd: []string{"/run"}}, Shim: 7, OwnNetwork: true, Capabilities: all,
	}
	for _, f := range change {
		f(&in)
	}
	return in
}

func made(t *testing.T, in Input) *Bundle {
	t.Helper()
	b, err := Container(in)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// security changes what the container asks for.
func security(f func(s *runtimeapi.LinuxContainerSecurityContext)) func(*Input) {
	return func(in *Input) { f(in.Container.GetLinux().GetSecurityContext()) }
}

// As CRI has it, a group without a user is an error, and not forgotten.
//
// spec: SEC-1
func TestGroupWithoutUser(t *testing.T) {
	_, err := Container(asked(security(func(s *runtimeapi.LinuxContainerSecurityContext) {
		s.RunAsGroup = &runtimeapi.Int64Value{Value: 9}
	})))
	if err == nil || !strings.Contains(err.Error(), "run_as_group") {
		t.Errorf("error %v", err)
	}
}

// A group that the pod names does not take the place of those that the image's /etc/group gives its user.
//
// spec: SEC-1
func TestGroupsOfUser(t *testing.T) {
	b := made(t, asked(security(func(s *runtimeapi.LinuxContainerSecurityContext) {
		s.RunAsUser, s.RunAsGroup = &runtimeapi.Int64Value{Value: 33}, &runtimeapi.Int64Value{Value: 9}
	})))
	if b.User != "33:9" || b.GroupsOf != "33" {
		t.Errorf("user %q, groups of %q", b.User, b.GroupsOf)
	}
	if b := made(t, asked(func(in *Input) { in.Image.User = "web:extra" })); b.User != "web:extra" || b.GroupsOf != "" {
		t.Errorf("of the image: user %q, groups of %q", b.User, b.GroupsOf)
	}
}

// A name without a value is left out: libcontainer starts nothing with it.
//
// spec: CTR-4
func TestVariableWithoutValue(t *testing.T) {
	b := made(t, asked(func(in *Input) { in.Image.Env = []string{"NOVALUE", "EMPTY=", "A=1"} }))
	for _, e := range b.Spec.Process.Env {
		if !strings.Contains(e, "=") {
			t.Errorf("%q", b.Spec.Process.Env)
		}
	}
	if !slices.Contains(b.Spec.Process.Env, "EMPTY=") || !slices.Contains(b.Spec.Process.Env, "A=1") {
		t.Errorf("%q", b.Spec.Process.Env)
	}
}

// ALL that is dropped wins over ALL that is added.
//
// spec: SEC-1
func TestAllDroppedAndAdded(t *testing.T) {
	b := made(t, asked(security(func(s *runtimeapi.LinuxContainerSecurityContext) {
		s.Capabilities = &runtimeapi.Capability{AddCapabilities: []string{"ALL", "KILL"}, DropCapabilities: []string{"ALL"}}
	})))
	if got := b.Spec.Process.Capabilities.Bounding; !slices.Equal(got, []string{"CAP_KILL"}) {
		t.Errorf("%v", got)
	}
}

// spec: CTR-4
func TestCommand(t *testing.T) {
	for _, c := range []struct {
		entrypoint, cmd, command, args string
		want                           string
	}{
		{entrypoint: "e", cmd: "c", want: "e c"},
		{entrypoint: "e", cmd: "c", command: "p", want: "p"},
		{entrypoint: "e", cmd: "c", args: "a b", want: "e a b"},
		{entrypoint: "e", cmd: "c", command: "p", args: "a", want: "p a"},
		{cmd: "c d", want: "c d"},
		{cmd: "c", args: "a", want: "a"},
		{entrypoint: "e", want: "e"},
		{},
		{args: "a", want: "a"},
	} {
		got, err := Command(&runtimeapi.ContainerConfig{Command: strings.Fields(c.command), Args: strings.Fields(c.args)},
			Image{Entrypoint: strings.Fields(c.entrypoint), Cmd: strings.Fields(c.cmd)})
		if strings.Join(got, " ") != c.want || (c.want == "") != errors.Is(err, ErrNoCommand) {
			t.Errorf("%+v: %q %v", c, got, err)
		}
	}
	if _, err := Command(&runtimeapi.ContainerConfig{Command: []string{""}}, Image{}); !errors.Is(err, ErrNoCommand) {
		t.Errorf("an empty command: %v", err)
	}
}

// What the runtime sets, then the image, then the pod; the last one of a name is what counts, at its first place.
func TestEnvironment(t *testing.T) {
	b := made(t, asked(func(in *Input) {
		in.Image.Env = []string{"A=image", "B=image", "PATH=/image", "A=again", "odd"}
		in.Container.Envs = []*runtimeapi.KeyValue{{Key: "B", Value: []byte("pod=x")}, {Key: "C", Value: []byte("")},
			{Key: "HOSTNAME", Value: []byte("mine")}}
	}))
	if want := []string{"PATH=/image", "HOSTNAME=mine", "A=again", "B=pod=x", "C="}; !slices.Equal(
		b.Spec.Process.Env, want) {
		t.Errorf("%q", b.Spec.Process.Env)
	}
	node := made(t, asked(func(in *Input) { in.Sandbox.Hostname, in.MachineName = "", "node" }))
	if !slices.Contains(node.Spec.Process.Env, "HOSTNAME=node") {
		t.Errorf("%q", node.Spec.Process.Env)
	}
	tty := made(t, asked(func(in *Input) { in.Container.Tty = true }))
	if want := []string{"PATH=" + DefaultPath, "HOSTNAME=pod", "TERM=xterm"}; !slices.Equal(tty.Spec.Process.Env, want) {
		t.Errorf("%q", tty.Spec.Process.Env)
	}
}

func TestWorkingDir(t *testing.T) {
	for _, c := range [][3]string{{"", "", "/"}, {"/image", "", "/image"}, {"/image", "/pod", "/pod"},
		{"rel", "", "/rel"}} {
		b := made(t, asked(func(in *Input) { in.Image.WorkingDir, in.Container.WorkingDir = c[0], c[1] }))
		if b.Spec.Process.Cwd != c[2] {
			t.Errorf("%q: %q", c, b.Spec.Process.Cwd)
		}
	}
}

// spec: SEC-1
func TestUsers(t *testing.T) {
	id := func(n int64) *runtimeapi.Int64Value { return &runtimeapi.Int64Value{Value: n} }
	for _, c := range []struct {
		image, want string
		sec         *runtimeapi.LinuxContainerSecurityContext
	}{
		{want: "0"},
		{image: "web:www", want: "web:www"},
		{image: "web", sec: &runtimeapi.LinuxContainerSecurityContext{RunAsUser: id(5)}, want: "5"},
		{image: "web", sec: &runtimeapi.LinuxContainerSecurityContext{RunAsUser: id(0), RunAsGroup: id(0)}, want: "0:0"},
		{sec: &runtimeapi.LinuxContainerSecurityContext{RunAsUsername: "joe", RunAsGroup: id(9)}, want: "joe:9"},
	} {
		b := made(t, asked(func(in *Input) {
			in.Image.User = c.image
			if c.sec != nil {
				in.Container.Linux.SecurityContext = c.sec
			}
		}))
		if b.User != c.want {
			t.Errorf("%+v: %q", c, b.User)
		}
	}
	b := made(t, asked(security(func(s *runtimeapi.LinuxContainerSecurityContext) {
		s.SupplementalGroups = []int64{4, 3}
		s.SupplementalGroupsPolicy = runtimeapi.SupplementalGroupsPolicy_Strict
	})))
	if got := b.Spec.Process.User.AdditionalGids; !slices.Equal(got, []uint32{4, 3}) || !b.StrictGroups {
		t.Errorf("%v %v", got, b.StrictGroups)
	}
}

// spec: SEC-1
func TestCapabilities(t *testing.T) {
	usual := strings.Fields(defaultCapabilities)
	without := func(names ...string) []string {
		return slices.DeleteFunc(slices.Clone(usual), func(s string) bool { return slices.Contains(names, s) })
	}
	every := strings.Fields(capabilityNames)
	butAdmin := slices.DeleteFunc(slices.Clone(every), func(s string) bool { return s == "SYS_ADMIN" })
	for name, c := range map[string]struct {
		add, drop, ambient []string
		own                uint64
		privileged         bool
		want               []string
		wantAmbient        []string
		err                string
	}{
		"nothing":             {want: usual},
		"add":                 {add: []string{"CAP_NET_ADMIN", "sys_time"}, want: append(without(), "NET_ADMIN", "SYS_TIME")},
		"drop":                {drop: []string{"MKNOD", "CAP_CHOWN"}, want: without("MKNOD", "CHOWN")},
		"drop all":            {drop: []string{"ALL"}, want: nil},
		"drop all, add one":   {drop: []string{"all"}, add: []string{"KILL"}, want: []string{"KILL"}},
		"add all":             {add: []string{"ALL"}, want: every},
		"add all, drop one":   {add: []string{"ALL"}, drop: []string{"SYS_ADMIN"}, want: butAdmin},
		"both":                {add: []string{"KILL"}, drop: []string{"KILL"}, want: without("KILL")},
		"unknown":             {add: []string{"FLY"}, err: `"FLY"`},
		"unknown drop":        {drop: []string{"CAP_"}, err: `"CAP_"`},
		"ambient":             {ambient: []string{"NET_BIND_SERVICE"}, want: usual, wantAmbient: []string{"NET_BIND_SERVICE"}},
		"ambient and dropped": {ambient: []string{"KILL"}, drop: []string{"KILL"}, want: without("KILL")},
		"privileged":          {privileged: true, drop: []string{"ALL"}, want: every},
		"poor":                {own: 1<<0 | 1<<5, want: []string{"CHOWN", "KILL"}},
		"poor adds":           {own: 1 << 0, add: []string{"KILL"}, err: "CAP_KILL"},
		"poor adds all":       {own: 1 << 0, add: []string{"ALL"}, want: []string{"CHOWN"}},
	} {
		in := asked(security(func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.Privileged = c.privileged
			s.Capabilities = &runtimeapi.Capability{AddCapabilities: c.add, DropCapabilities: c.drop,
				AddAmbientCapabilities: c.ambient}
		}))
		if c.own != 0 {
			in.Capabilities = c.own
		}
		got, err := capabilities(in)
		if c.err != "" || err != nil {
			if err == nil || c.err == "" || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		same := func(what string, got, want []string) {
			var short []string
			for _, s := range got {
				short = append(short, strings.TrimPrefix(s, "CAP_"))
			}
			slices.Sort(short)
			if want = slices.Sorted(slices.Values(want)); !slices.Equal(short, want) {
				t.Errorf("%s: %s %q, want %q", name, what, short, want)
			}
		}
		same("bounding", got.Bounding, c.want)
		same("effective", got.Effective, c.want)
		same("permitted", got.Permitted, c.want)
		same("inheritable", got.Inheritable, c.wantAmbient)
		same("ambient", got.Ambient, c.wantAmbient)
	}
}

// Paths of /proc and /sys are hidden as CRI says them: none for procMount Unmasked, none for privileged containers.
//
// spec: SEC-1
func TestMaskedPaths(t *testing.T) {
	paths := security(func(s *runtimeapi.LinuxContainerSecurityContext) {
		s.MaskedPaths, s.ReadonlyPaths = []string{"/proc/kcore"}, []string{"/proc/sys"}
	})
	b := made(t, asked(paths))
	if l := b.Spec.Linux; !slices.Equal(l.MaskedPaths, []string{"/proc/kcore"}) ||
		!slices.Equal(l.ReadonlyPaths, []string{"/proc/sys"}) {
		t.Errorf("%+v", l)
	}
	b = made(t, asked(paths, security(func(s *runtimeapi.LinuxContainerSecurityContext) {
		s.Privileged, s.NoNewPrivs = true, true
	})))
	if l := b.Spec.Linux; l.MaskedPaths != nil || l.ReadonlyPaths != nil || l.Seccomp != nil ||
		!b.Spec.Process.NoNewPrivileges || !l.Resources.Devices[0].Allow {
		t.Errorf("privileged: %+v", l)
	}
}

// A privileged container has the machine's devices, and those that it asks for at other places, or in place of the
// machine's.
func TestDevicesOfPrivileged(t *testing.T) {
	privileged := security(func(s *runtimeapi.LinuxContainerSecurityContext) { s.Privileged = true })
	with := func(host, at string) func(*Input) {
		return func(in *Input) {
			in.Container.Devices = []*runtimeapi.Device{{HostPath: host, ContainerPath: at, Permissions: "rw"}}
		}
	}
	for _, c := range []struct{ at, look string }{{"/dev/extra", "/dev/extra"}, {"/dev/full", "/dev/full"},
		{"/dev/extra", "/dev/full"}} {
		b := made(t, asked(privileged, with("/dev/zero", c.at)))
		var minors []int64
		for _, d := range b.Spec.Linux.Devices {
			if d.Path == c.look {
				minors = append(minors, d.Minor)
			}
		}
		want := int64(5) // that of /dev/zero
		if c.at != c.look {
			want = 7
		}
		if !slices.Equal(minors, []int64{want}) {
			t.Errorf("/dev/zero at %s: %s is %v", c.at, c.look, minors)
		}
	}
	if _, err := Container(asked(privileged, with("/dev/not-there", "/dev/extra"))); err == nil {
		t.Error("a device that is missing is no error")
	}
}

// spec: SEC-1
func TestSeccomp(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good", `{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["mkdir"],"action":"SCMP_ACT_ERRNO"}]}`)
	bad := write("bad", `{"defaultAction":`)
	profile := func(kind runtimeapi.SecurityProfile_ProfileType, ref string) func(*Input) {
		return security(func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.Seccomp = &runtimeapi.SecurityProfile{ProfileType: kind, LocalhostRef: ref}
		})
	}
	if b := made(t, asked()); b.Spec.Linux.Seccomp != nil {
		t.Error("a filter that nobody asked for")
	}
	if b := made(t, asked(profile(runtimeapi.SecurityProfile_Unconfined, ""))); b.Spec.Linux.Seccomp != nil {
		t.Error("unconfined has a filter")
	}
	usual := made(t, asked(profile(runtimeapi.SecurityProfile_RuntimeDefault, ""))).Spec.Linux.Seccomp
	if usual == nil || usual.DefaultAction != specs.ActErrno {
		t.Fatalf("%+v", usual)
	}
	allows := func(s *specs.LinuxSeccomp, name string) bool {
		return slices.ContainsFunc(s.Syscalls, func(c specs.LinuxSyscall) bool {
			return c.Action == specs.ActAllow && slices.Contains(c.Names, name) && len(c.Args) == 0
		})
	}
	if !allows(usual, "read") || allows(usual, "mount") || allows(usual, "kexec_load") {
		t.Error("the usual filter allows too little, or too much")
	}
	// It follows the capabilities.
	admin := made(t, asked(profile(runtimeapi.SecurityProfile_RuntimeDefault, ""),
		security(func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.Capabilities = &runtimeapi.Capability{AddCapabilities: []string{"SYS_ADMIN"}}
		}))).Spec.Linux.Seccomp
	if !allows(admin, "mount") {
		t.Error("mount is forbidden to who may mount")
	}
	for _, ref := range []string{good, "localhost/" + good} {
		own := made(t, asked(profile(runtimeapi.SecurityProfile_Localhost, ref))).Spec.Linux.Seccomp
		if own == nil || own.DefaultAction != specs.ActAllow || !slices.Contains(own.Syscalls[0].Names, "mkdir") {
			t.Errorf("%s: %+v", ref, own)
		}
	}
	for ref, want := range map[string]string{bad: bad, "rel": "absolute", filepath.Join(dir, "none"): "no such file"} {
		_, err := Container(asked(profile(runtimeapi.SecurityProfile_Localhost, ref)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", ref, err)
		}
	}
}

func TestNamespaces(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Input)
		want   string
	}{
		"usual":        {func(*Input) {}, "mount ipc=/proc/7/ns/ipc uts=/proc/7/ns/uts network=/proc/7/ns/net pid"},
		"host network": {func(in *Input) { in.OwnNetwork = false }, "mount ipc=/proc/7/ns/ipc uts=/proc/7/ns/uts pid"},
		"host ipc": {security(func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.NamespaceOptions.Ipc = runtimeapi.NamespaceMode_NODE
		}), "mount uts=/proc/7/ns/uts network=/proc/7/ns/net pid"},
		"host pid": {security(func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.NamespaceOptions.Pid = runtimeapi.NamespaceMode_NODE
		}), "mount ipc=/proc/7/ns/ipc uts=/proc/7/ns/uts network=/proc/7/ns/net"},
		"shared pid": {func(in *Input) {
			in.Init = 8
			in.Container.Linux.SecurityContext.NamespaceOptions.Pid = runtimeapi.NamespaceMode_POD
		}, "mount ipc=/proc/7/ns/ipc uts=/proc/7/ns/uts network=/proc/7/ns/net pid=/proc/8/ns/pid"},
		"the pid of a sandbox with the host's": {func(in *Input) {
			in.Sandbox = &runtimeapi.PodSandboxConfig{Linux: &runtimeapi.LinuxPodSandboxConfig{
				SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
					NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_NODE}}}}
			in.Container.Linux.SecurityContext = nil
		}, "mount ipc=/proc/7/ns/ipc uts=/proc/7/ns/uts network=/proc/7/ns/net"},
		"target": {func(in *Input) {
			in.Target = 9
			in.Container.Linux.SecurityContext.NamespaceOptions.Pid = runtimeapi.NamespaceMode_TARGET
		}, "mount ipc=/proc/7/ns/ipc uts=/proc/7/ns/uts network=/proc/7/ns/net pid=/proc/9/ns/pid"},
		"cgroup2": {func(in *Input) { in.Unified = true },
			"mount ipc=/proc/7/ns/ipc uts=/proc/7/ns/uts network=/proc/7/ns/net pid cgroup"},
	} {
		var got []string
		for _, ns := range made(t, asked(c.change)).Spec.Linux.Namespaces {
			s := string(ns.Type)
			if ns.Path != "" {
				s += "=" + ns.Path
			}
			got = append(got, s)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", name, strings.Join(got, " "), c.want)
		}
	}
}

// A container that has a namespace of cgroups sees no others at /sys/fs/cgroup either, also where the machine's /sys
// is mounted as it is.
func TestOwnCgroups(t *testing.T) {
	alone := func(in *Input) { in.Rootless, in.OwnNetwork = true, false }
	unified := func(in *Input) { in.Unified = true }
	privileged := security(func(s *runtimeapi.LinuxContainerSecurityContext) { s.Privileged = true })
	for name, c := range map[string]struct {
		in   Input
		want bool
	}{
		"the machine's files":         {asked(alone), false},
		"in cgroup2":                  {asked(alone, unified), true},
		"privileged in cgroup2":       {asked(alone, unified, privileged), false},
		"with a network of their own": {asked(func(in *Input) { in.Rootless = true }), true},
	} {
		got := slices.ContainsFunc(made(t, c.in).Spec.Mounts, func(m specs.Mount) bool { return m.Type == "cgroup" })
		if got != c.want {
			t.Errorf("%s: cgroups are mounted: %v, want %v", name, got, c.want)
		}
	}
}

// cgroup v1 knows shares as a preference; everything else is set by package cgroup, before the container is made.
func TestResources(t *testing.T) {
	shares := func(in *Input) {
		in.Container.Linux.Resources = &runtimeapi.LinuxContainerResources{CpuShares: 512, MemoryLimitInBytes: 1 << 20}
	}
	r := made(t, asked(shares)).Spec.Linux.Resources
	if r.CPU == nil || *r.CPU.Shares != 512 || r.Memory != nil {
		t.Errorf("%+v", r)
	}
	for name, change := range map[string]func(*Input){
		"cgroup2":  func(in *Input) { in.Unified = true },
		"rootless": func(in *Input) { in.Rootless = true },
	} {
		if r := made(t, asked(shares, change)).Spec.Linux.Resources; r.CPU != nil {
			t.Errorf("%s: %+v", name, r.CPU)
		}
	}
}

func TestAppArmor(t *testing.T) {
	if got := made(t, asked(func(in *Input) { in.AppArmor = "mine" })).Spec.Process.ApparmorProfile; got != "mine" {
		t.Errorf("%q", got)
	}
}
