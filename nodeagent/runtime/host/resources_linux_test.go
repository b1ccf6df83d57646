package host

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/cgroup"
)

func limited(config *runtimeapi.ContainerConfig, memory int64) *runtimeapi.ContainerConfig {
	config.Linux = &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{
		MemoryLimitInBytes: memory, CpuQuota: 50_000, CpuPeriod: 100_000, Unified: map[string]string{"pids.max": "64"},
	}}
	return config
}

func (n *node) warnings(id string) string {
	n.t.Helper()
	resp, err := n.ContainerStatus(n.t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		n.t.Fatal(err)
	}
	return resp.GetInfo()["warnings"]
}

// spec: CTR-10
func TestUnenforcedLimitsAreTold(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the records are the runtime's")
	n := newNode(t, func(c *Config) { c.NoCgroups = true })
	id := n.run(n.sandbox("free"), limited(containerConfig("c", "sleep", "1000"), 64<<20))
	for _, want := range []string{"the memory limit is not enforced", "the cpu limit is not enforced",
		"the pids limit is not enforced"} {
		if w := n.warnings(id); !strings.Contains(w, want) {
			t.Errorf("warnings %s; want %q", w, want)
		}
	}
	sb := n.sandbox("quiet")
	quiet := n.run(sb, containerConfig("c", "sleep", "1000"))
	if w := n.warnings(quiet); w != "" {
		t.Errorf("warnings without limits: %s", w)
	}
	// So it is with limits that change.
	for _, id := range []string{id, quiet} {
		_, err := n.UpdateContainerResources(t.Context(), &runtimeapi.UpdateContainerResourcesRequest{
			ContainerId: id, Linux: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1 << 30}})
		if err != nil {
			t.Error(err)
		}
		if got := n.status(id).GetResources().GetLinux().GetMemoryLimitInBytes(); got != 1<<30 {
			t.Errorf("after an update its limit is said to be %d", got)
		}
		if w := n.warnings(id); strings.Count(w, "the memory limit is not enforced") != 1 {
			t.Errorf("warnings after an update: %s", w)
		}
	}
	_, err := n.UpdatePodSandboxResources(t.Context(), &runtimeapi.UpdatePodSandboxResourcesRequest{
		PodSandboxId: sb, Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1 << 30}})
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("of the pod as a whole: %v", err)
	}
}

// A container of an image runs without the limits that cannot be set, too, and they are told.
//
// spec: CTR-10
func TestRootImageUnenforcedLimitsAreTold(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t), func(c *Config) { c.NoCgroups = true })
	id := n.run(n.sandbox("free"), ofImage(limited(containerConfig("c", "sleep", "1000"), 64<<20)))
	for _, want := range []string{"the memory limit is not enforced", "the cpu limit is not enforced"} {
		if w := n.warnings(id); !strings.Contains(w, want) {
			t.Errorf("warnings %s; want %q", w, want)
		}
	}
}

// spec: CTR-5, CTR-10
func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	sb := n.sandbox("oom")
	hog := n.create(sb, limited(containerConfig("hog", "/bin/sh", "-c", `x=0123456789abcdef; while :; do x="$x$x"; done`),
		16<<20))
	if w := n.warnings(hog); strings.Contains(w, "memory") {
		t.Skip("no memory controller here: ", w)
	}
	other := n.run(sb, containerConfig("other", "sleep", "1000"))
	if err := n.start(hog); err != nil {
		t.Fatal(err)
	}
	if st := n.wait(hog); st.GetReason() != "OOMKilled" || st.GetExitCode() != 137 {
		t.Errorf("status %v", st)
	}
	if st := n.status(other); st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the other container: %v", st)
	}
}

// spec: CTR-10
func TestUpdateLimits(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	id := n.run(n.sandbox("resized"), limited(containerConfig("c", "sleep", "1000"), 64<<20))
	if w := n.warnings(id); w != "" {
		t.Skip("not all controllers here: ", w)
	}
	_, err := n.UpdateContainerResources(t.Context(), &runtimeapi.UpdateContainerResourcesRequest{ContainerId: id,
		Linux: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 128 << 20, CpuQuota: 70_000, CpuPeriod: 100_000}})
	if err != nil {
		t.Fatal(err)
	}
	n.mu.RLock()
	group := n.containers[id].rec.group
	n.mu.RUnlock()
	found := false
	for _, dir := range append(group.V1, group.Unified) {
		for _, file := range []string{"memory.limit_in_bytes", "memory.max"} {
			if b, err := os.ReadFile(filepath.Join(dir, file)); err == nil {
				found = true
				if got := strings.TrimSpace(string(b)); got != strconv.Itoa(128<<20) {
					t.Errorf("%s is %s", file, got)
				}
			}
		}
	}
	if !found {
		t.Errorf("no memory limit in %+v", group)
	}
}

func TestStats(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	if ok, why := n.cgroups.Killable(); !ok {
		t.Skip("no usable cgroup: ", why)
	}
	id := n.shell("busy", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; exec sleep 1000")
	eventually(t, "cpu time is counted", func() bool {
		resp, err := n.ListContainerStats(t.Context(),
			&runtimeapi.ListContainerStatsRequest{Filter: &runtimeapi.ContainerStatsFilter{Id: id}})
		return err == nil && len(resp.GetStats()) == 1 &&
			resp.GetStats()[0].GetCpu().GetUsageCoreNanoSeconds().GetValue() > 10_000_000 &&
			resp.GetStats()[0].GetMemory().GetWorkingSetBytes().GetValue() > 0
	})
	if cgroup.Stats(n.containers[id].rec.group).CPUNanos <= 0 {
		t.Error("no cpu time")
	}
}

// A pod's processes are counted with their threads, those of all its containers, and with what a container has forked.
//
// spec: QOS-2
func TestProcessesAreCounted(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	if ok, why := n.cgroups.Killable(); !ok {
		t.Skip("no usable cgroup: ", why)
	}
	sb := n.sandbox("many")
	n.run(sb, containerConfig("one", "sleep", "1000"))
	fork := "for i in 1 2 3 4; do sleep 1000 & done; exec sleep 1000"
	four := n.run(sb, limited(containerConfig("five", "sh", "-c", fork), 64<<20))
	eventually(t, "six processes are counted", func() bool {
		resp, err := n.ListPodSandboxStats(t.Context(),
			&runtimeapi.ListPodSandboxStatsRequest{Filter: &runtimeapi.PodSandboxStatsFilter{Id: sb}})
		return err == nil && len(resp.GetStats()) == 1 &&
			resp.GetStats()[0].GetLinux().GetProcess().GetProcessCount().GetValue() == 6
	})
	n.stop(four, 10)
	resp, err := n.PodSandboxStats(t.Context(), &runtimeapi.PodSandboxStatsRequest{PodSandboxId: sb})
	if err != nil {
		t.Fatal(err)
	}
	s := resp.GetStats()
	worked := func(u *runtimeapi.CpuUsage) uint64 { return u.GetUsageCoreNanoSeconds().GetValue() }
	if l := s.GetLinux(); l.GetProcess().GetProcessCount().GetValue() != 1 || len(l.GetContainers()) != 1 ||
		l.GetMemory().GetWorkingSetBytes().GetValue() == 0 || (l.GetNetwork() != nil) != onImages() ||
		worked(l.GetCpu()) < worked(l.GetContainers()[0].GetCpu()) ||
		s.GetAttributes().GetId() != sb || s.GetAttributes().GetMetadata().GetName() != "many" {
		t.Errorf("%v", s)
	}
	_, err = n.PodSandboxStats(t.Context(), &runtimeapi.PodSandboxStatsRequest{PodSandboxId: "none"})
	if status.Code(err) != codes.NotFound {
		t.Errorf("of none: %v", err)
	}
	if _, err := n.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: sb}); err != nil {
		t.Fatal(err)
	}
	list, err := n.ListPodSandboxStats(t.Context(), &runtimeapi.ListPodSandboxStatsRequest{})
	if err != nil || len(list.GetStats()) != 0 {
		t.Errorf("of what has ended: %v, %v", list, err)
	}
}

// A rate takes two readings a second apart, is kept in between, and is not known after a counter began anew.
func TestMeter(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "it starts nothing")
	var m meter
	second := meterWindow
	for i, x := range []struct{ at, cpu, want int64 }{
		{10 * second, 5 * second, -1}, {10*second + 1, 6 * second, -1},
		{12 * second, 6 * second, 500_000_000}, {12*second + second/2, 9 * second, 500_000_000},
		{13 * second, 9 * second, 3_000_000_000}, {14 * second, 1, -1}, {15 * second, 1, 0},
	} {
		if got := m.rate(x.at, x.cpu); got != x.want {
			t.Errorf("reading %d: %d, want %d", i, got, x.want)
		}
	}
}

// With a memory limit the memory controller tells more than the sum of pages.
func TestMemoryStats(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	const limit = 64 << 20
	id := n.run(n.sandbox("memory"), limited(containerConfig("c", "sleep", "1000"), limit))
	if w := n.warnings(id); strings.Contains(w, "the memory limit") {
		t.Skip("no memory controller here: ", w)
	}
	var resp *runtimeapi.ContainerStatsResponse
	eventually(t, "what the container has written is measured, which takes a moment", func() (there bool) {
		var err error
		if resp, err = n.ContainerStats(t.Context(), &runtimeapi.ContainerStatsRequest{ContainerId: id}); err != nil {
			t.Fatal(err)
		}
		return resp.GetStats().GetWritableLayer() != nil
	})
	m := resp.GetStats().GetMemory()
	used, set, left := m.GetUsageBytes().GetValue(), m.GetWorkingSetBytes().GetValue(), m.GetAvailableBytes().GetValue()
	if set == 0 || set > used || set+left != limit || m.GetRssBytes() == nil || m.GetPageFaults().GetValue() == 0 ||
		m.GetMajorPageFaults() == nil {
		t.Errorf("%v", resp)
	}
}

func TestExecSync(t *testing.T) {
	t.Parallel()
	onlyHost(t, "libcontainer has words of its own")
	n := newNode(t)
	config := containerConfig("c", "sleep", "1000")
	config.Envs = []*runtimeapi.KeyValue{{Key: "FOO", Value: []byte("bar")}}
	id := n.run(n.sandbox("exec"), config)
	exec := func(timeout int64, cmd ...string) (*runtimeapi.ExecSyncResponse, error) {
		return n.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: cmd, Timeout: timeout})
	}
	resp, err := exec(10, "sh", "-c", "echo $FOO; echo oops >&2; exit 3")
	if err != nil || string(resp.GetStdout()) != "bar\n" || string(resp.GetStderr()) != "oops\n" ||
		resp.GetExitCode() != 3 {
		t.Errorf("%v %v", resp, err)
	}
	if resp, err = exec(0, "sh", "-c", "head -c 3000000 /dev/zero"); err != nil ||
		len(resp.GetStdout()) != maxExecOutput {
		t.Errorf("%d bytes, %v", len(resp.GetStdout()), err)
	}
	if _, err = exec(0, "no-such-program"); err == nil || !strings.Contains(err.Error(), "not found in PATH") {
		t.Errorf("%v", err)
	}
	pidFile := filepath.Join(n.dir, "exec-pid")
	// How long a machine that is busy needs to begin it, nobody knows.
	for timeout := int64(1); !exists(pidFile) && timeout < 100; timeout *= 2 {
		_, err = exec(timeout, "sh", "-c", "echo $$ > "+pidFile+"; sleep 1000")
	}
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("%v", err)
	}
	if alive(readPID(t, pidFile)) {
		t.Error("the command goes on after its timeout")
	}
	// What an exec leaves behind ends with the container.
	if _, err = exec(10, "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $! > "+pidFile); err != nil {
		t.Error(err)
	}
	left := readPID(t, pidFile)
	if !alive(left) {
		t.Error("the background process has ended with the exec")
	}
	n.stop(id, 10)
	if alive(left) {
		t.Error("the background process is alive")
	}
	if _, err = exec(1, "true"); err == nil {
		t.Error("a command ran in an exited container")
	}
}

// What was set is told, by the next process too; what does not change may stay unenforced. spec: CTR-10, OBJ-10
func TestUpdatedLimitsAreKept(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "the records are the runtime's")
	n := newNode(t)
	id := n.run(n.sandbox("kept"), limited(containerConfig("c", "sleep", "1000"), 64<<20))
	told := func() *runtimeapi.LinuxContainerResources { return n.status(id).GetResources().GetLinux() }
	if got := told(); got.GetMemoryLimitInBytes() != 64<<20 || got.GetCpuQuota() != 50_000 {
		t.Errorf("before: %v", got)
	}
	_, err := n.UpdateContainerResources(t.Context(), &runtimeapi.UpdateContainerResourcesRequest{ContainerId: id,
		Linux: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 64 << 20, CpuQuota: 50_000, CpuPeriod: 100_000,
			CpuShares: 512}})
	if err != nil {
		t.Fatalf("only the share of the processors changes: %v", err)
	}
	n.reopen()
	if got := told(); got.GetMemoryLimitInBytes() != 64<<20 || got.GetCpuShares() != 512 {
		t.Errorf("after a restart: %v", got)
	}
}
