package host

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The containers of a pod may use together what the pod may, whatever each of them may alone, also those that are made
// after a restart of the runtime; and what the pod is worth beside others is set where that takes no group more.
//
// spec: INIT-8, CTR-10
func TestPodLimits(t *testing.T) {
	t.Parallel()
	sameOnImages(t, "TestRootImagePodLimits does")
	testPodLimits(t, newNode(t), func(c *runtimeapi.ContainerConfig) *runtimeapi.ContainerConfig { return c })
}

// The same of containers of an image, whose pod has groups in all hierarchies.
//
// spec: INIT-8, CTR-10
func TestRootImagePodLimits(t *testing.T) {
	t.Parallel()
	testPodLimits(t, newNode(t, withImages(t)), ofImage)
}

func testPodLimits(
	t *testing.T, n *node, of func(*runtimeapi.ContainerConfig) *runtimeapi.ContainerConfig,
) {
	sb := n.sandbox("whole")
	limit := func(memory int64) error {
		_, err := n.UpdatePodSandboxResources(t.Context(), &runtimeapi.UpdatePodSandboxResourcesRequest{
			PodSandboxId: sb, Resources: &runtimeapi.LinuxContainerResources{
				MemoryLimitInBytes: memory, CpuQuota: 50_000, CpuPeriod: 100_000, CpuShares: 512,
			}})
		return err
	}
	// More than a shim has, whose score only some roots may lower, and which the race detector makes large.
	const little, more = 64 << 20, 96 << 20
	if err := limit(little); err != nil {
		t.Skip("not all controllers here: ", err)
	}
	for i, memory := range []int64{little, more} {
		if err := limit(memory); err != nil {
			t.Fatal(err)
		}
		if got, want := n.podSetting(sb, "memory.limit_in_bytes", "memory.max"), strconv.FormatInt(memory, 10); got != want {
			t.Errorf("the pod's memory is limited to %s, want %s", got, want)
		}
		if got := n.podSetting(sb, "cpu.cfs_quota_us", "cpu.max"); !strings.HasPrefix(got, "50000") {
			t.Errorf("the pod's processor time is limited to %s", got)
		}
		if share := n.podSetting(sb, "cpu.shares", "cpu.weight"); n.oci != nil && share != "512" && share != "20" {
			t.Errorf("the pod is worth %s", share)
		}
		hog := n.create(sb, of(containerConfig("hog"+strconv.Itoa(i), "/bin/sh", "-c",
			`x=0123456789abcdef; while :; do x="$x$x"; done`)))
		if err := n.start(hog); err != nil {
			t.Fatal(err)
		}
		if st := n.wait(hog); st.GetReason() != "OOMKilled" || st.GetExitCode() != 137 {
			t.Errorf("status %v", st)
		}
		n.reopen()
	}
	few := &runtimeapi.LinuxContainerResources{Unified: map[string]string{"pids.max": "60"}}
	if _, err := n.UpdatePodSandboxResources(t.Context(), &runtimeapi.UpdatePodSandboxResourcesRequest{
		PodSandboxId: sb, Resources: few,
	}); err != nil {
		t.Fatal(err)
	}
	if got := n.podSetting(sb, "pids.max"); got != "60" {
		t.Errorf("the pod's processes are limited to %q", got)
	}
	many := n.run(sb, of(containerConfig("many", "/bin/sh", "-c", `i=0
while [ $i -lt 70 ]; do sleep 100 & i=$((i+1)); done`)))
	if st := n.wait(many); st.GetExitCode() == 0 || !strings.Contains(n.logText(many), "fork") {
		t.Errorf("a pod with more processes than it may have: %v, %s", st, n.logText(many))
	}
}

// podSetting reads what is set for a pod, in the words of one of the two versions of cgroups; empty for nothing.
func (n *node) podSetting(sandbox string, files ...string) string {
	n.mu.RLock()
	group := n.sandboxes[sandbox].rec.group
	n.mu.RUnlock()
	for _, dir := range slices.Concat([]string{group.Unified}, group.V1) {
		for _, file := range files {
			if text, err := os.ReadFile(filepath.Join(dir, file)); dir != "" && err == nil {
				return strings.TrimSpace(string(text))
			}
		}
	}
	return ""
}

// What cannot be limited is said: where there are no cgroups, and where a container runs outside of them.
//
// spec: INIT-8
func TestPodLimitsThatCannotBeSet(t *testing.T) {
	t.Parallel()
	limit := func(n *node, sandbox string) error {
		_, err := n.UpdatePodSandboxResources(t.Context(), &runtimeapi.UpdatePodSandboxResourcesRequest{
			PodSandboxId: sandbox, Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 16 << 20}})
		return err
	}
	n := newNode(t, func(c *Config) { c.NoCgroups = true })
	if err := limit(n, n.sandbox("free")); status.Code(err) != codes.Unimplemented ||
		!strings.Contains(err.Error(), "the memory limit is not enforced") {
		t.Errorf("without cgroups: %v", err)
	}
	if err := limit(n, "nobody"); status.Code(err) != codes.NotFound {
		t.Errorf("without a sandbox: %v", err)
	}
	n = newNode(t)
	sb := n.sandbox("running")
	if err := limit(n, sb); err != nil {
		t.Skip("no memory controller here: ", err)
	}
	sb = n.sandbox("late")
	n.run(sb, containerConfig("c", "sleep", "1000"))
	if n.oci != nil || n.podSetting(sb, "memory.max") != "" {
		return // In cgroup2, and where it is of an image, a container is in all groups of its pod.
	}
	if err := limit(n, sb); status.Code(err) != codes.FailedPrecondition ||
		!strings.Contains(err.Error(), "a container was started without a cgroup for it") {
		t.Errorf("beside a container that runs: %v", err)
	}
}
