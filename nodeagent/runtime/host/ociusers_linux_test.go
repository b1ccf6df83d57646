package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// firstTestID is where the ids of the first pod with users of its own begin; each has testIDs.
const (
	firstTestID = 1 << 20
	testIDs     = 1 << 16
)

// usersFrom are users of a pod's own.
func usersFrom(first uint32) *runtimeapi.UserNamespace {
	ids := []*runtimeapi.IDMapping{{HostId: first, Length: testIDs}}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids, Gids: ids}
}

// userSandbox makes a sandbox with users of its own.
func (n *node) userSandbox(name string, users *runtimeapi.UserNamespace, change ...func(*runtimeapi.PodSandboxConfig),
) string {
	n.t.Helper()
	if os.Geteuid() != 0 {
		n.t.Skip("users of a pod's own take root")
	}
	config := sandboxConfig(n, name)
	config.Linux = &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER, UsernsOptions: users}}}
	for _, f := range change {
		f(config)
	}
	made, err := n.RunPodSandbox(n.t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		n.t.Fatal(err)
	}
	return made.GetPodSandboxId()
}

// as gives a container the users of its sandbox, and maps its mounts as the agent does.
func as(users *runtimeapi.UserNamespace) func(*runtimeapi.ContainerConfig) {
	return func(c *runtimeapi.ContainerConfig) {
		options := c.Linux.SecurityContext.NamespaceOptions
		options.UsernsOptions = users
		if options.Pid == runtimeapi.NamespaceMode_NODE {
			options.Pid = runtimeapi.NamespaceMode_CONTAINER // As sandboxes with users of their own have it.
		}
		for _, m := range c.GetMounts() {
			m.UidMappings, m.GidMappings = users.GetUids(), users.GetGids()
		}
	}
}

// said compares what a container has said with what it is to say, line by line.
func said(t *testing.T, got, want string) {
	t.Helper()
	have, wanted := strings.Split(strings.TrimSpace(got), "\n"), strings.Split(strings.TrimSpace(want), "\n")
	for i := range max(len(have), len(wanted)) {
		if i >= len(have) || i >= len(wanted) || strings.Join(strings.Fields(have[i]), " ") != wanted[i] {
			t.Fatalf("line %d is not as wanted: it says\n%s\nand not\n%s", i+1, got, want)
		}
	}
}

// A container with users of its own is root of them and of nothing else. Its pod's namespaces belong to them.
//
// spec: USER-1, SEC-1
func TestRootUsers(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	before := settings(t)
	users := usersFrom(firstTestID)
	sb := n.userSandbox("pod", users, func(c *runtimeapi.PodSandboxConfig) {
		c.Linux.Sysctls = map[string]string{"net.ipv4.ip_unprivileged_port_start": "7", "kernel.shm_rmid_forced": "1"}
	})
	got := n.attack(sb, "c", `
id -u; cat /proc/self/uid_map /proc/self/gid_map; hostname
cd /tmp; touch f; chown 65535:65535 f && stat -c %u:%g f; chown 65536 f 2>/dev/null || echo "no 65536"
mknod d c 1 3 2>/dev/null || echo "no devices"
stat -c '%u %n' / /bin/busybox /dev/shm /etc/hostname
cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/kernel/shm_rmid_forced
ip link set lo mtu 1400 && cat /sys/class/net/lo/mtu
hostname mine && hostname
mount -t tmpfs tmpfs /home && echo mounted
echo opened >/dev/stdout
su web -c 'id -u; touch /data/x 2>/dev/null || echo "not the root'"'"'s"'
unshare -U -r id -u
(echo 3 >/proc/sys/vm/drop_caches) 2>/dev/null || echo "not the machine's"`,
		as(users), func(c *runtimeapi.ContainerConfig) {
			c.Linux.SecurityContext.Capabilities = &runtimeapi.Capability{AddCapabilities: []string{"NET_ADMIN", "SYS_ADMIN"}}
			c.Linux.SecurityContext.ReadonlyPaths = nil
		})
	said(t, got, `
0
0 1048576 65536
0 1048576 65536
pod
65535:65535
no 65536
no devices
0 /
0 /bin/busybox
0 /dev/shm
0 /etc/hostname
7
1
1400
mine
mounted
opened
33
not the root's
0
not the machine's`)
	if after := settings(t); after != before {
		t.Errorf("the machine has\n%s\nand had\n%s", after, before)
	}
	n.removeAll()
	n.leftNoMounts()
}

// Two pods have different ids of the machine: what one has written is nobody's for the other, and their processes
// are different users of the machine.
//
// spec: USER-1
func TestRootUsersOfTwoPods(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	for i := range uint32(2) {
		first := firstTestID + i*testIDs
		users := usersFrom(first)
		c := victim("c", "sleep", "1000")
		as(users)(c)
		id := n.run(n.userSandbox(fmt.Sprint("pod", i), users), c)
		var st unix.Stat_t
		if err := unix.Stat(fmt.Sprintf("/proc/%d", n.pid(id)), &st); err != nil || st.Uid != first || st.Gid != first {
			t.Errorf("its process is of user %d, group %d of the machine, not %d: %v", st.Uid, st.Gid, first, err)
		}
		if is, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", n.pid(id))); err != nil || is == here(t, "user") {
			t.Errorf("it is in the user namespace %s: %v", is, err)
		}
		out, err := n.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id,
			Cmd: []string{"sh", "-c", "id -u; touch /made; stat -c %u /made; echo opened >/dev/stdout"}})
		if err != nil || string(out.GetStdout()) != "0\n0\nopened\n" {
			t.Errorf("exec says %q %q %v", out.GetStdout(), out.GetStderr(), err)
		}
	}
	n.removeAll()
	n.leftNoMounts()
}

// here is the namespace of this process.
func here(t *testing.T, kind string) string {
	t.Helper()
	is, err := os.Readlink("/proc/self/ns/" + kind)
	if err != nil {
		t.Fatal(err)
	}
	return is
}

// What is mounted belongs in the container to whom it belongs on the machine, as far as there are such users: a file
// of the machine's root to the container's, and one that the container has made there to the same id outside. Without
// a mapping it is nobody's.
//
// spec: USER-1, USER-2, VOL-1
func TestRootUsersVolumes(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	users := usersFrom(firstTestID)
	sb := n.userSandbox("pod", users)
	dir := t.TempDir()
	for name, id := range map[string]int{"root": 0, "web": 33, "beyond": 70000} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, id, id); err != nil {
			t.Fatal(err)
		}
	}
	got := n.attack(sb, "c", `
cd /volume; stat -c '%u %n' root web beyond; cat root; echo; cat beyond 2>/dev/null || echo "nobody's"
touch made; chown 44:45 made; (echo >/readonly/new) 2>/dev/null || echo read-only
cp /bin/busybox suid; chmod 4755 suid
stat -c '%u %n' /unmapped/root; cat /unmapped/root 2>/dev/null || echo "nobody's"
cat /part/file`, func(c *runtimeapi.ContainerConfig) {
		if err := os.MkdirAll(filepath.Join(dir, "below/part"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "below/part/file"), []byte("a part\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		c.Mounts = []*runtimeapi.Mount{{HostPath: dir, ContainerPath: "/volume"},
			{HostPath: dir, ContainerPath: "/readonly", Readonly: true},
			{HostPath: dir, ContainerPath: "/part", ImageSubPath: "below/part"},
		}
		as(users)(c)
		c.Mounts = append(c.Mounts, &runtimeapi.Mount{HostPath: dir, ContainerPath: "/unmapped"})
	})
	said(t, got, `
0 root
33 web
65534 beyond
root
nobody's
read-only
65534 /unmapped/root
nobody's
a part`)
	for name, want := range map[string][2]uint32{"made": {44, 45}, "suid": {0, 0}} {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, name), &st); err != nil || st.Uid != want[0] || st.Gid != want[1] {
			t.Errorf("%s belongs to %d:%d, not %v: %v", name, st.Uid, st.Gid, want, err)
		}
	}
	// A file system that cannot map ids is named.
	c := victim("proc", "true")
	c.Mounts = []*runtimeapi.Mount{{HostPath: "/proc/fs", ContainerPath: "/x"}}
	as(users)(c)
	err := n.start(n.create(sb, c))
	if err == nil || !strings.Contains(err.Error(), "/proc/fs") || !strings.Contains(err.Error(), "(proc)") {
		t.Errorf("a mount of /proc: %v", err)
	}
	n.removeAll()
	n.leftNoMounts()
}

// A user whom the pod has not got is refused with the reason.
//
// spec: USER-1
func TestRootUsersBeyond(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	users := usersFrom(firstTestID)
	c := victim("c", "true")
	as(users)(c)
	c.Linux.SecurityContext.RunAsUser = &runtimeapi.Int64Value{Value: 70000}
	err := n.start(n.create(n.userSandbox("pod", users), c))
	if err == nil || !strings.Contains(err.Error(), "user 70000 does not exist") ||
		!strings.Contains(err.Error(), "0 to 65535") {
		t.Errorf("%v", err)
	}
}

// The containers of a pod with users of its own may share their processes, of which the first belongs to them too. A
// runtime that starts again finds the namespaces, and they end with the shim.
//
// spec: USER-1, SAFE-5
func TestRootUsersShareAndStay(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	users := usersFrom(firstTestID)
	sb := n.userSandbox("pod", users, func(c *runtimeapi.PodSandboxConfig) {
		c.Linux.SecurityContext.NamespaceOptions.Pid = runtimeapi.NamespaceMode_POD
		c.Linux.Sysctls = map[string]string{"kernel.shm_rmid_forced": "1"}
	})
	shared := func(name string, command ...string) *runtimeapi.ContainerConfig {
		c := victim(name, command...)
		as(users)(c)
		c.Linux.SecurityContext.NamespaceOptions.Pid = runtimeapi.NamespaceMode_POD
		return c
	}
	id := n.run(sb, shared("long", "sleep", "1000"))
	n.reopen()
	other := n.run(sb, shared("other", "sh", "-c",
		"cat /proc/sys/kernel/shm_rmid_forced; stat -c %u /proc/1; ps | grep -c 'sleep 100[0]'; exit 4"))
	if st := n.wait(other); st.GetExitCode() != 4 {
		t.Errorf("%v", st)
	}
	said(t, strings.ReplaceAll(n.logText(other), "stdout F ", ""), "1\n0\n1")
	pid, first := n.pid(id), firstProcess(t, n.shimPID(sb))
	if err := unix.Kill(n.shimPID(sb), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all has ended with the shim", func() bool { return !alive(pid) && !exists("/proc/"+first) })
	n.removeAll()
	n.leftNoMounts()
}

// Pods whose users cannot be as they are asked for are refused with the reason, and leave nothing.
//
// spec: USER-1, USER-2
func TestRootUsersRefused(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	const node = runtimeapi.NamespaceMode_NODE
	ids := func(list ...*runtimeapi.IDMapping) func(*runtimeapi.NamespaceOption) {
		return func(o *runtimeapi.NamespaceOption) { o.UsernsOptions.Uids = list }
	}
	for what, change := range map[string]func(*runtimeapi.NamespaceOption){
		"network":    func(o *runtimeapi.NamespaceOption) { o.Network = node },
		"processes":  func(o *runtimeapi.NamespaceOption) { o.Pid = node },
		"IPC":        func(o *runtimeapi.NamespaceOption) { o.Ipc = node },
		"needs uids": ids(),
		"overlap": ids(&runtimeapi.IDMapping{HostId: 1 << 20, Length: 10},
			&runtimeapi.IDMapping{ContainerId: 10, HostId: 1<<20 + 9, Length: 2}),
		"with root":     ids(&runtimeapi.IDMapping{ContainerId: 1, HostId: 1 << 20, Length: 10}),
		"machine's":     ids(&runtimeapi.IDMapping{Length: 10}),
		"range of ids:": ids(&runtimeapi.IDMapping{HostId: 1 << 20}),
	} {
		config := sandboxConfig(n, "pod")
		options := &runtimeapi.NamespaceOption{UsernsOptions: usersFrom(firstTestID)}
		change(options)
		config.Linux = &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: options}}
		_, err := n.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	st, err := n.Status(t.Context(), &runtimeapi.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	why := st.GetInfo()[usersInfo]
	can := st.GetRuntimeHandlers()[0].GetFeatures().GetUserNamespaces()
	if can != (os.Geteuid() == 0) || can != (why == "") {
		t.Errorf("it says that it can: %v, and why not: %q", can, why)
	}
}
