//go:build rootonly

package cridiff_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// feature is something that a pod or its container asks for.
type feature struct {
	name string
	ask  func(*play)
}

var features = append(append(append(append([]feature{}, securityFeatures...), mountFeatures...), processFeatures...),
	podFeatures...)

// What these features take away, others write to.
var takeAway = []string{"no linux", "no security context", "pod without linux", "no log", "no log directory",
	"no metadata", "no resources", "pod without metadata"}

func takesAway(f feature) bool { return slices.Contains(takeAway, f.name) }

func number(n int64) *runtimeapi.Int64Value { return &runtimeapi.Int64Value{Value: n} }

func capabilitiesOf(add, drop string) func(*play) {
	return func(p *play) {
		p.sec().Capabilities = &runtimeapi.Capability{AddCapabilities: strings.Fields(add),
			DropCapabilities: strings.Fields(drop)}
	}
}

// profile is a seccomp profile that lets everything through but the name of the host and reading memory.
const profile = `{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["sethostname","process_vm_readv"],
"action":"SCMP_ACT_ERRNO","errnoRet":95}]}`

func seccomp(kind runtimeapi.SecurityProfile_ProfileType, file, text string) func(*play) {
	return func(p *play) {
		s := &runtimeapi.SecurityProfile{ProfileType: kind}
		if kind == runtimeapi.SecurityProfile_Localhost {
			s.LocalhostRef = filepath.Join(p.dir, file)
			p.write(file, text)
		}
		p.sec().Seccomp = s
	}
}

// write makes a file of the case, if it has a text.
func (p *play) write(name, text string) {
	if text == "" {
		return
	}
	path := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // others enter it too
		p.t.Error(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // others read it too
		p.t.Error(err)
	}
}

var securityFeatures = []feature{
	{"privileged", func(p *play) {
		p.sec().Privileged, p.pod.Linux.SecurityContext.Privileged = true, true
		p.sec().MaskedPaths, p.sec().ReadonlyPaths = nil, nil
	}},
	{"privileged with more", func(p *play) {
		p.sec().Privileged, p.pod.Linux.SecurityContext.Privileged, p.sec().NoNewPrivs = true, true, true
		device("/dev/zero", "/dev/extra", "rw")(p)
	}},
	{"privileged beyond the pod", func(p *play) { p.sec().Privileged = true }},
	{"add NET_ADMIN", capabilitiesOf("NET_ADMIN", "")},
	{"add with prefix", capabilitiesOf("CAP_SYS_PTRACE", "")},
	{"add in small letters", capabilitiesOf("sys_time", "")},
	{"add unknown", capabilitiesOf("FLYING", "")},
	{"drop unknown", capabilitiesOf("", "FLYING")},
	{"drop NET_RAW and CHOWN", capabilitiesOf("", "NET_RAW CHOWN")},
	{"drop ALL", capabilitiesOf("", "ALL")},
	{"drop ALL add KILL", capabilitiesOf("KILL SYS_ADMIN", "ALL")},
	{"add ALL", capabilitiesOf("ALL", "")},
	{"add ALL drop NET_RAW", capabilitiesOf("ALL", "NET_RAW")},
	{"add and drop the same", capabilitiesOf("NET_ADMIN KILL", "NET_ADMIN")},
	{"add ALL drop ALL", capabilitiesOf("ALL", "ALL")},
	{"read-only root", func(p *play) { p.sec().ReadonlyRootfs = true }},
	{"user 1000", func(p *play) { p.sec().RunAsUser = number(1000) }},
	{"user 1000 group 2000", func(p *play) { p.sec().RunAsUser, p.sec().RunAsGroup = number(1000), number(2000) }},
	{"user 33", func(p *play) { p.sec().RunAsUser = number(33) }},
	{"user 4000", func(p *play) { p.sec().RunAsUser = number(4000) }},
	{"user 0", func(p *play) { p.sec().RunAsUser = number(0) }},
	{"user name", func(p *play) { p.sec().RunAsUsername = "web" }},
	{"user name and group", func(p *play) { p.sec().RunAsUsername, p.sec().RunAsGroup = "web", number(5) }},
	{"user name unknown", func(p *play) { p.sec().RunAsUsername = "somebody" }},
	{"group alone", func(p *play) { p.sec().RunAsGroup = number(2000) }},
	{"groups", func(p *play) { p.sec().SupplementalGroups = []int64{10, 77, 20} }},
	{"groups of a user", func(p *play) {
		p.sec().RunAsUser, p.sec().SupplementalGroups = number(33), []int64{4000, 77}
	}},
	{"no new privileges", func(p *play) { p.sec().NoNewPrivs = true }},
	{"seccomp unconfined", seccomp(runtimeapi.SecurityProfile_Unconfined, "", "")},
	{"seccomp default", seccomp(runtimeapi.SecurityProfile_RuntimeDefault, "", "")},
	{"seccomp file", seccomp(runtimeapi.SecurityProfile_Localhost, "seccomp.json", profile)},
	{"seccomp file missing", seccomp(runtimeapi.SecurityProfile_Localhost, "none.json", "")},
	{"seccomp file broken", seccomp(runtimeapi.SecurityProfile_Localhost, "broken.json", "{")},
	{"AppArmor default", func(p *play) {
		p.sec().Apparmor = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
	}},
	{"AppArmor unconfined", func(p *play) {
		p.sec().Apparmor = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
	}},
	{"SELinux", func(p *play) { p.sec().SelinuxOptions = &runtimeapi.SELinuxOption{Level: "s0:c1,c2"} }},
	{"no masked paths", func(p *play) { p.sec().MaskedPaths, p.sec().ReadonlyPaths = nil, nil }},
	{"own masked paths", func(p *play) {
		p.sec().MaskedPaths, p.sec().ReadonlyPaths = []string{"/proc/kcore", "/data/file", "/data/old", "/not/there"},
			[]string{"/data/secret", "/proc/irq", "/not/there/either"}
	}},
}

func mount(at string, change ...func(*play, *runtimeapi.Mount)) func(*play) {
	return func(p *play) {
		source := filepath.Join(p.dir, "source")
		p.write("source/text", "of the machine\n")
		p.write("source/below/more", "more\n")
		m := &runtimeapi.Mount{HostPath: source, ContainerPath: at}
		for _, f := range change {
			f(p, m)
		}
		p.container.Mounts = append(p.container.Mounts, m)
	}
}

func readonly(_ *play, m *runtimeapi.Mount) { m.Readonly = true }

func from(name string) func(*play, *runtimeapi.Mount) {
	return func(p *play, m *runtimeapi.Mount) { m.HostPath = filepath.Join(p.dir, name) }
}

func goes(how runtimeapi.MountPropagation) func(*play, *runtimeapi.Mount) {
	return func(_ *play, m *runtimeapi.Mount) { m.Propagation = how }
}

// nested mounts another file system below the source.
func nested(p *play, m *runtimeapi.Mount) {
	at := filepath.Join(m.HostPath, "sub")
	err := os.MkdirAll(at, 0o755) //nolint:gosec // others enter it too
	if err == nil {
		err = unix.Mount("tmpfs", at, "tmpfs", 0, "mode=755,size=1m")
	}
	if err != nil {
		p.t.Error(err)
	}
	p.t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) }) // A container's root may have gone with it.
}

// devices has the source have what a process needs of /dev.
func devices(p *play, m *runtimeapi.Mount) {
	for _, dir := range []string{"pts", "mqueue", "shm"} {
		p.write(filepath.Join("source", dir, "of-the-machine"), "below\n")
	}
	for name, minor := range map[string]uint32{"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9} {
		path := filepath.Join(m.HostPath, name)
		if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, minor))); err != nil && !os.IsExist(err) {
			p.t.Error(err)
		}
	}
}

var mountFeatures = []feature{
	{"mount", mount("/mnt")},
	{"mount read-only", mount("/mnt", readonly)},
	{"mount below the image", mount("/data/old")},
	{"mount at a new path", mount("/new/path")},
	{"mount at a relative path", mount("relative/path")},
	{"mount at an unclean path", mount("/mnt/../mnt//x/")},
	{"mount of a file", mount("/mnt/file", from("source/text"))},
	{"mount of a file over a file", mount("/data/file", from("source/text"), readonly)},
	{"mount of a file over a directory", mount("/data/old", from("source/text"))},
	{"mount of a directory over a file", mount("/data/file")},
	{"mount over a link", mount("/data/link", from("source/text"))},
	{"mount of what is missing", mount("/mnt", from("missing/at/all"))},
	{"mount of a link", mount("/mnt", func(p *play, m *runtimeapi.Mount) {
		m.HostPath = filepath.Join(p.dir, "link")
		if err := os.Symlink("source", m.HostPath); err != nil && !os.IsExist(err) {
			p.t.Error(err)
		}
	})},
	{"mount of a broken link", mount("/mnt", func(p *play, m *runtimeapi.Mount) {
		m.HostPath = filepath.Join(p.dir, "broken")
		if err := os.Symlink("nowhere", m.HostPath); err != nil && !os.IsExist(err) {
			p.t.Error(err)
		}
	})},
	{"mount without source", mount("/mnt", func(_ *play, m *runtimeapi.Mount) { m.HostPath = "" })},
	{"mount at the root", mount("/")},
	{"mount nowhere", mount("")},
	{"mount from the host", mount("/mnt", nested, goes(runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER))},
	{"mount both ways", mount("/mnt", nested, goes(runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL))},
	{"mount with another below", mount("/mnt", nested)},
	{"mount with another below, read-only", mount("/mnt", nested, readonly)},
	{"mount twice at one path", func(p *play) { mount("/mnt")(p); mount("/mnt", from("source/below"))(p) }},
	{"mount inside a mount", func(p *play) { mount("/mnt/in", from("source/below"))(p); mount("/mnt")(p) }},
	{"mount at /dev/shm", mount("/dev/shm")},
	{"mount at /proc/x", mount("/proc/x")},
	{"mount at /sys", mount("/sys", func(p *play, _ *runtimeapi.Mount) {
		p.write("source/fs/cgroup/memory/memory.limit_in_bytes", "of the machine\n")
	})},
	{"mount at /etc/hosts", func(p *play) {
		p.container.Mounts = nil
		mount("/etc/hosts", from("source/text"))(p)
	}},
	{"nothing at /etc/hosts", func(p *play) { p.container.Mounts = nil }},
	{"mount at /etc/resolv.conf", mount("/etc/resolv.conf", from("source/text"))},
	{"mount at /etc/hostname", mount("/etc/hostname", from("source/text"))},
	{"mount at /dev", func(p *play) { // To mask something takes a /dev/null.
		mount("/dev")(p)
		p.sec().MaskedPaths, p.sec().ReadonlyPaths = nil, nil
	}},
	{"mount of devices at /dev", mount("/dev", devices)},
	{"mount at /dev/termination-log", mount("/dev/termination-log", from("source/text"))},
	{"device", device("/dev/null", "/dev/extra", "rwm")},
	{"device read-only", device("/dev/zero", "/dev/extra", "r")},
	{"device without access", device("/dev/zero", "/dev/extra", "")},
	{"device with wrong access", device("/dev/zero", "/dev/extra", "x")},
	{"device in place of another", device("/dev/zero", "/dev/null", "rw")},
	{"device missing", device("/dev/not-there", "/dev/extra", "rwm")},
	{"device that is none", device("/etc/passwd", "/dev/extra", "rwm")},
	{"device at a new directory", device("/dev/zero", "/dev/new/extra", "rwm")},
	{"devices of a directory", device("/dev/net", "/dev/net", "rwm")},
}

func device(from, at, access string) func(*play) {
	return func(p *play) {
		p.container.Devices = append(p.container.Devices, &runtimeapi.Device{HostPath: from, ContainerPath: at,
			Permissions: access})
	}
}

func image(name string) func(*play) {
	return func(p *play) { p.container.Image = &runtimeapi.ImageSpec{Image: imageName(name)} }
}

func environment(pairs ...string) func(*play) {
	return func(p *play) {
		for _, pair := range pairs {
			key, value, _ := strings.Cut(pair, "=")
			p.container.Envs = append(p.container.Envs, &runtimeapi.KeyValue{Key: key, Value: []byte(value)})
		}
	}
}

func resources(change func(*runtimeapi.LinuxContainerResources)) func(*play) {
	return func(p *play) { change(p.res()) }
}

var processFeatures = []feature{
	{"image by id", image("user-id")}, {"image by ids", image("user-ids")}, {"image by name", image("user-name")},
	{"image by name and group", image("user-group")}, {"image by name and gid", image("user-gid")},
	{"image by known id", image("user-known-id")}, {"image with unknown user", image("user-unknown")},
	{"image with unknown group", image("group-unknown")}, {"image without command", image("no-command")},
	{"image with cmd", image("only-cmd")}, {"image with entrypoint and cmd", image("entry-and-cmd")},
	{"image without PATH", image("no-path")}, {"image with a missing directory", image("dir-missing")},
	{"image with a relative directory", image("dir-relative")},
	{"image with a directory of others", image("dir-of-others")},
	{"image with a missing directory and a user", image("dir-missing-usr")},
	{"image with volumes", image("volume")}, {"image with a relative command", image("relative")},
	{"image with a file that is no program", image("not-executable")},
	{"image with a directory as command", image("is-directory")}, {"image with odd variables", image("env-odd")},
	{"image unknown", image("none-of-these")},
	{"command", func(p *play) { p.container.Command = []string{insidePath, "from-command"} }},
	{"command and args", func(p *play) {
		p.container.Command, p.container.Args = []string{insidePath, "a"}, []string{"b", "", "c d"}
	}},
	{"args", func(p *play) { p.container.Args = []string{"from-args"} }},
	{"command in the PATH", func(p *play) {
		p.container.Command = []string{"sh", "-c",
			`trap "exit 3" TERM; echo $(grep -v timeout /proc/self/limits); while :; do sleep 0.1; done`}
	}},
	{"command missing", func(p *play) { p.container.Command = []string{"/not/there"} }},
	{"command missing in the PATH", func(p *play) { p.container.Command = []string{"not-there"} }},
	{"command empty", func(p *play) { p.container.Command = []string{""} }},
	{"working directory", func(p *play) { p.container.WorkingDir = "/tmp" }},
	{"working directory missing", func(p *play) { p.container.WorkingDir = "/not/there/at/all" }},
	{"working directory relative", func(p *play) { p.container.WorkingDir = "tmp" }},
	{"working directory is a file", func(p *play) { p.container.WorkingDir = "/data/file" }},
	{"working directory of others", func(p *play) {
		p.container.WorkingDir, p.sec().RunAsUser = "/data/secret", number(1000)
	}},
	{"variables", environment("A=1", "B=", "FROM_IMAGE=no", "A=2", "LINES=x\ny", "PATH=/bin:/here")},
	{"variable HOSTNAME", environment("HOSTNAME=mine", "HOME=/here", "TERM=dumb")},
	{"terminal", func(p *play) { p.container.Tty = true }},
	{"terminal and stdin", func(p *play) { p.container.Tty, p.container.Stdin = true, true }},
	{"stdin", func(p *play) { p.container.Stdin = true }},
	{"stdin once", func(p *play) { p.container.Stdin, p.container.StdinOnce = true, true }},
	{"memory", resources(func(r *runtimeapi.LinuxContainerResources) { r.MemoryLimitInBytes = 256 << 20 })},
	{"memory tiny", resources(func(r *runtimeapi.LinuxContainerResources) { r.MemoryLimitInBytes = 4096 })},
	{"cpu", resources(func(r *runtimeapi.LinuxContainerResources) { r.CpuQuota, r.CpuShares = 50_000, 512 })},
	{"cpu period", resources(func(r *runtimeapi.LinuxContainerResources) { r.CpuQuota, r.CpuPeriod = 20_000, 50_000 })},
	{"cpu shares 1", resources(func(r *runtimeapi.LinuxContainerResources) { r.CpuShares = 1 })},
	{"cpu shares 0", resources(func(r *runtimeapi.LinuxContainerResources) { r.CpuShares = 0 })},
	{"cpuset", resources(func(r *runtimeapi.LinuxContainerResources) { r.CpusetCpus, r.CpusetMems = "1", "0" })},
	{"cpuset impossible", resources(func(r *runtimeapi.LinuxContainerResources) { r.CpusetCpus = "999" })},
	{"oom score -900", resources(func(r *runtimeapi.LinuxContainerResources) { r.OomScoreAdj = -900 })},
	{"oom score 500", resources(func(r *runtimeapi.LinuxContainerResources) { r.OomScoreAdj = 500 })},
	{"oom score too large", resources(func(r *runtimeapi.LinuxContainerResources) { r.OomScoreAdj = 2000 })},
	{"huge pages", resources(func(r *runtimeapi.LinuxContainerResources) {
		r.HugepageLimits = []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 0}, {PageSize: "1GB", Limit: 0}}
	})},
	{"huge pages of an unknown size", resources(func(r *runtimeapi.LinuxContainerResources) {
		r.HugepageLimits = []*runtimeapi.HugepageLimit{{PageSize: "3MB", Limit: 1 << 20}}
	})},
	{"no resources", func(p *play) {
		if p.container.Linux != nil {
			p.container.Linux.Resources = nil
		}
	}},
	{"no log", func(p *play) { // What says nothing is known to have run when it has ended.
		p.container.LogPath, p.container.Command, p.container.Args = "", nil, []string{"once"}
	}},
	{"log in a directory", func(p *play) { p.container.LogPath = "main/0.log" }},
	{"no labels", func(p *play) { p.container.Labels, p.container.Annotations = nil, nil }},
	{"no metadata", func(p *play) { p.container.Metadata = nil }},
	{"no name", func(p *play) { p.container.Metadata.Name = "" }},
	{"attempt 3", func(p *play) { p.container.Metadata.Attempt = 3 }},
	{"no linux", func(p *play) { p.container.Linux = nil }},
	{"no security context", func(p *play) {
		if p.container.Linux != nil {
			p.container.Linux.SecurityContext = nil
		}
	}},
}

func sysctls(pairs ...string) func(*play) {
	return func(p *play) {
		if p.pod.Linux.Sysctls == nil {
			p.pod.Linux.Sysctls = map[string]string{}
		}
		for i := 0; i < len(pairs); i += 2 {
			p.pod.Linux.Sysctls[pairs[i]] = pairs[i+1]
		}
	}
}

var podFeatures = []feature{
	{"host network", func(p *play) {
		p.pod.Hostname = ""
		p.options(func(o *runtimeapi.NamespaceOption) { o.Network = runtimeapi.NamespaceMode_NODE })
	}},
	{"host processes", func(p *play) {
		p.options(func(o *runtimeapi.NamespaceOption) { o.Pid = runtimeapi.NamespaceMode_NODE })
	}},
	{"host processes by the sandbox", func(p *play) {
		p.pod.Linux.SecurityContext.NamespaceOptions.Pid = runtimeapi.NamespaceMode_NODE
		p.sec().NamespaceOptions.Pid = runtimeapi.NamespaceMode_POD
	}},
	{"shared processes", func(p *play) {
		p.options(func(o *runtimeapi.NamespaceOption) { o.Pid = runtimeapi.NamespaceMode_POD })
	}},
	{"host IPC", func(p *play) {
		p.options(func(o *runtimeapi.NamespaceOption) { o.Ipc = runtimeapi.NamespaceMode_NODE })
	}},
	{"sysctl of the network", sysctls("net.ipv4.ip_unprivileged_port_start", "80", "net.ipv4.ping_group_range", "0 10")},
	{"sysctl of IPC", sysctls("kernel.shm_rmid_forced", "1", "kernel.msgmax", "65536", "fs.mqueue.msg_max", "20")},
	{"sysctl with slashes", sysctls("net/ipv4/tcp_syncookies", "0")},
	{"sysctl of the machine", sysctls("vm.overcommit_memory", "1")},
	{"sysctl unknown", sysctls("net.ipv4.not_there", "1")},
	{"sysctl with a bad value", sysctls("net.ipv4.tcp_syncookies", "a lot")},
	{"no DNS", func(p *play) { p.pod.DnsConfig = nil }},
	{"much DNS", func(p *play) {
		p.pod.DnsConfig = &runtimeapi.DNSConfig{Servers: []string{"192.0.2.1", "2001:db8::1"},
			Searches: []string{"a.example", "b.example"}, Options: []string{"ndots:2", "rotate"}}
	}},
	{"empty DNS", func(p *play) { p.pod.DnsConfig = &runtimeapi.DNSConfig{} }},
	{"no hostname", func(p *play) { p.pod.Hostname = "" }},
	{"long hostname", func(p *play) { p.pod.Hostname = strings.Repeat("h", 64) }},
	{"hostname too long", func(p *play) { p.pod.Hostname = strings.Repeat("h", 65) }},
	{"ports", func(p *play) {
		p.pod.PortMappings = []*runtimeapi.PortMapping{{ContainerPort: 80}, {Protocol: runtimeapi.Protocol_UDP,
			ContainerPort: 53}}
	}},
	{"no log directory", func(p *play) {
		p.pod.LogDirectory, p.container.LogPath = "", ""
		p.container.Command, p.container.Args = nil, []string{"once"}
	}},
	{"no pod labels", func(p *play) { p.pod.Labels, p.pod.Annotations = nil, nil }},
	{"pod attempt 2", func(p *play) { p.pod.Metadata.Attempt = 2 }},
	{"pod without metadata", func(p *play) { p.pod.Metadata = nil }},
	{"pod without name", func(p *play) { p.pod.Metadata.Name = "" }},
	{"pod without namespace", func(p *play) { p.pod.Metadata.Namespace = "" }},
	{"pod without uid", func(p *play) { p.pod.Metadata.Uid = "" }},
	{"pod without linux", func(p *play) { p.pod.Linux = nil }},
}
