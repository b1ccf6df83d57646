package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/oci"
)

// cgroups2 is where a machine that has nothing but cgroup2 has it.
const cgroups2 = "/sys/fs/cgroup"

// Where the runtime leaves cgroups alone, none is made for a container of an image, nor left behind, though root can.
//
// spec: DEL-13
func TestRootImageWithoutCgroup(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t), func(c *Config) { c.NoCgroups = true })
	id := n.run(n.sandbox("pod"), ofImage(containerConfig("c", "sleep", "1000")))
	got, err := n.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"echo", "here"}})
	if err != nil || string(got.GetStdout()) != "here\n" {
		t.Errorf("a command says %q, %v", got.GetStdout(), err)
	}
	err = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == id {
			t.Errorf("there is the group %s", path)
		}
		return nil // groups of others come and go
	})
	if err != nil {
		t.Error(err)
	}
}

// Of a pod that has been stopped no group is left when the runtime has been closed, also where the kernel called one
// busy at first, as it does while a shim that this process has not started is on its way out.
//
// spec: DEL-13
func TestRootImageGroupIsBusyAtFirst(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	if ok, why := n.cgroups.Killable(); !ok {
		t.Skip("no usable cgroup: ", why)
	}
	sb := n.sandbox("pod")
	n.run(sb, ofImage(containerConfig("c", "sleep", "1000")))
	group := n.cgroups.Pod(sb)
	busy := exec.Command("sleep", "1000")
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	procs := filepath.Join(group.Unified, "shim", "cgroup.procs")
	err := os.WriteFile(procs, []byte(strconv.Itoa(busy.Process.Pid)), 0)
	n.stopSandboxes(sb)
	if !exists(group.Unified) {
		t.Error("the group was not busy")
	}
	if err := errors.Join(err, busy.Process.Kill()); err != nil {
		t.Fatal(err)
	}
	_ = busy.Wait() // It was killed.
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range append(group.V1, group.Unified) {
		if exists(dir) {
			t.Errorf("the group %s is left", dir)
		}
	}
	n.open()
}

// A container of an image sees its own cgroup of cgroup2 and no other one, read-only, also what is started in it
// later; a privileged one sees the machine's.
//
// spec: CTR-10
func TestRootImageOwnCgroup(t *testing.T) {
	t.Parallel()
	if !exists(filepath.Join(cgroups2, "cgroup.controllers")) {
		t.Skip("this machine has not cgroup2 alone")
	}
	n := newNode(t, withImages(t))
	if ok, why := n.cgroups.Killable(); !ok {
		t.Skip("no usable cgroup: ", why)
	}
	const script = `cat /proc/self/cgroup; read -r event </sys/fs/cgroup/cgroup.events; echo "$event"
read -r process </sys/fs/cgroup/cgroup.procs && echo processes
mkdir /sys/fs/cgroup/mp-test-own 2>/dev/null || echo refused`
	const own = "0::/|populated 1|processes|refused|"
	said := func(text string) string {
		return strings.ReplaceAll(strings.ReplaceAll(text, "stdout F ", ""), "\n", "|")
	}
	for name, mode := range map[string]runtimeapi.NamespaceMode{
		"own network": runtimeapi.NamespaceMode_POD, "network of the node": runtimeapi.NamespaceMode_NODE,
	} {
		config := sandboxConfig(n, strings.ReplaceAll(name, " ", "-"))
		config.Linux = &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Network: mode}}}
		resp, err := n.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
		if err != nil {
			t.Fatal(err)
		}
		sb := resp.GetPodSandboxId()
		ofMode := func(c *runtimeapi.ContainerConfig) *runtimeapi.ContainerConfig {
			c = ofImage(c)
			c.Linux.SecurityContext.NamespaceOptions.Network = mode
			return c
		}
		id := n.run(sb, ofMode(containerConfig("c", "/bin/sh", "-c", script+"; exec sleep 1000")))
		eventually(t, "the container says what it sees", func() bool {
			return strings.HasSuffix(said(n.logText(id)), "refused|")
		})
		if got := said(n.logText(id)); got != own {
			t.Errorf("%s: %s, want %s", name, got, own)
		}
		got, err := n.ExecSync(t.Context(),
			&runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"/bin/sh", "-c", script}})
		if err != nil || said(string(got.GetStdout())) != own {
			t.Errorf("%s, a command: %s, want %s: %v", name, got, own, err)
		}
		privileged := ofMode(containerConfig("p", "cat", "/proc/self/cgroup"))
		privileged.Linux.SecurityContext.Privileged = true
		id = n.run(sb, privileged)
		n.wait(id)
		whole := strings.TrimPrefix(n.sandboxOf(sb).rec.group.Unified, cgroups2)
		if got := said(n.logText(id)); !strings.HasPrefix(got, "0::"+whole+"/") {
			t.Errorf("%s, privileged: %s, want it below %s", name, got, whole)
		}
	}
}

// refusing is a network that has no address for anybody, and knows who has asked.
type refusing struct {
	loopbackOnly

	asked []string
}

func (r *refusing) Attach(_ context.Context, s oci.Sandbox) ([]netip.Addr, error) {
	r.asked = append(r.asked, s.ID)
	return nil, errors.New("no address is left")
}

// Of a sandbox that could not be made no cgroup is left, though the kernel calls one busy for a moment after its last
// process has ended.
//
// spec: SAFE-1
func TestRootImageFailedSandboxLeavesNoGroup(t *testing.T) {
	t.Parallel()
	network := &refusing{}
	n := newNode(t, withImages(t), func(c *Config) { c.OCI.Network = network })
	if ok, why := n.cgroups.Killable(); !ok {
		t.Skip("no usable cgroup: ", why)
	}
	for i := range 30 {
		config := sandboxConfig(n, fmt.Sprint("p", i))
		_, err := n.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
		if err == nil || !strings.Contains(err.Error(), "no address is left") {
			t.Fatal(err)
		}
	}
	for _, id := range network.asked {
		if group := n.cgroups.Pod(id).Unified; exists(group) {
			t.Errorf("the group %s is left", group)
		}
	}
}
