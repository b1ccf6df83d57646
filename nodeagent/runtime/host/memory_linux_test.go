package host

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/cgroup"
)

// ofMemory are the settings of cgroup2 that the tests below look at.
var ofMemory = [...]string{"memory.min", "memory.low", "memory.high", "memory.max", "memory.swap.max"}

// In cgroup2 a container and its pod have as much memory reserved as they ask for, are slowed down and kept off swap
// space as they ask for it, also after a change, and nobody is told that this is not so.
//
// spec: QOS-3, INIT-8, OBJ-10
func TestRootLimitsOfMemory(t *testing.T) {
	t.Parallel()
	testLimitsOfMemory(t, func(c *runtimeapi.ContainerConfig) *runtimeapi.ContainerConfig { return c })
}

// The same of containers of an image.
//
// spec: QOS-3, INIT-8, OBJ-10
func TestRootImageLimitsOfMemory(t *testing.T) {
	t.Parallel()
	testLimitsOfMemory(t, ofImage, withImages(t))
}

func testLimitsOfMemory(
	t *testing.T, of func(*runtimeapi.ContainerConfig) *runtimeapi.ContainerConfig, change ...func(*Config),
) {
	if !exists(filepath.Join(cgroups2, "cgroup.controllers")) {
		t.Skip("this machine has not cgroup2 alone")
	}
	above := cgroups2
	parent := fmt.Sprintf("/mp-test-memory-%d-%s", os.Getpid(), t.Name())
	if isRoot() {
		change = append(change, func(c *Config) { c.CgroupParent = parent })
		t.Cleanup(func() {
			if err := os.Remove(filepath.Join(cgroups2, parent)); err != nil {
				t.Error(err)
			}
		})
	}
	n := newNode(t, change...)
	if ok, why := n.cgroups.Killable(); !ok {
		t.Skip("no usable cgroup: ", why)
	}
	sb := n.sandbox("reserving")
	group := n.sandboxOf(sb).rec.group.Unified
	if !isRoot() { // whose part of the tree has what was handed to it
		above = filepath.Dir(group)
	}
	if has, err := os.ReadFile(filepath.Join(above, "cgroup.controllers")); err != nil ||
		!slices.Contains(strings.Fields(string(has)), "memory") {
		t.Skipf("no memory controller here: %s %v", has, err)
	}
	look := func(what, dir string, want ...string) {
		t.Helper()
		for i, file := range ofMemory[:len(want)] {
			got, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil || strings.TrimSpace(string(got)) != want[i] {
				t.Errorf("%s: %s is %q, want %s: %v", what, file, got, want[i], err)
			}
		}
	}
	const mi = 1 << 20
	bytes := func(n int) string { return fmt.Sprint(n * mi) }
	limit := func(sandbox string, memory int64, unified map[string]string) {
		t.Helper()
		_, err := n.UpdatePodSandboxResources(t.Context(), &runtimeapi.UpdatePodSandboxResourcesRequest{
			PodSandboxId: sandbox,
			Resources:    &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: memory, Unified: unified}})
		if err != nil {
			t.Error(err)
		}
	}
	reserved := func(what, low, least string) {
		t.Helper()
		if isRoot() { // Others may not change the group that they were given.
			look(what+", all pods", filepath.Join(cgroups2, parent), least, low)
		}
	}
	limit(sb, 256*mi, map[string]string{"memory.min": bytes(32), "memory.low": bytes(48)})
	look("the pod", group, bytes(32), bytes(48), "max", bytes(256), "0")
	reserved("one pod", bytes(48), bytes(32))
	other := n.sandbox("other")
	limit(other, 0, map[string]string{"memory.min": bytes(8)})
	reserved("two pods", bytes(48), bytes(40))

	run := func(name string, memory int64, unified map[string]string) (id, dir string) {
		t.Helper()
		config := of(containerConfig(name, "sleep", "1000"))
		if config.Linux == nil {
			config.Linux = &runtimeapi.LinuxContainerConfig{}
		}
		config.Linux.Resources = &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: memory, Unified: unified}
		id = n.run(sb, config)
		if w := n.warnings(id); w != "" {
			t.Errorf("%s is told %s", name, w)
		}
		return id, n.containerGroup(id)
	}
	_, dir := run("free", 0, map[string]string{"memory.swap.max": "0"})
	look("without a limit", dir, "0", "0", "max", "max", "0")
	id, dir := run("limited", 96*mi, map[string]string{"memory.min": bytes(16), "memory.low": bytes(24),
		"memory.high": bytes(80), "memory.swap.max": bytes(4)})
	look("the container", dir, bytes(16), bytes(24), bytes(80), bytes(96), bytes(4))
	for _, c := range []struct {
		memory  int64
		unified map[string]string
		want    []string
	}{
		{128, map[string]string{"memory.low": bytes(40), "memory.high": bytes(100), "memory.swap.max": "0"},
			[]string{"0", bytes(40), bytes(100), bytes(128), "0"}},
		{64, map[string]string{"memory.min": bytes(20), "memory.swap.max": "max"},
			[]string{bytes(20), "0", "max", bytes(64), "max"}},
	} {
		_, err := n.UpdateContainerResources(t.Context(), &runtimeapi.UpdateContainerResourcesRequest{ContainerId: id,
			Linux: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: c.memory * mi, Unified: c.unified}})
		if err != nil {
			t.Error(err)
		}
		look(fmt.Sprintf("the container of %d MiB", c.memory), dir, c.want...)
		n.reopen()
	}
	limit(sb, 256*mi, map[string]string{"memory.low": bytes(16)})
	look("the changed pod", group, "0", bytes(16), "max", bytes(256), "0")
	reserved("changed", bytes(16), bytes(8))
	if _, err := n.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: other}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: other}); err != nil {
		t.Fatal(err)
	}
	reserved("one has gone", bytes(16), "0")
}

// Settings of cgroup2 are taken in the kernel's words, and it is told which are not taken, and which values are none.
//
// spec: QOS-3, CTR-10
func TestLimitsOfUnified(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "it starts nothing")
	lim, warnings := limits(&runtimeapi.LinuxContainerResources{Unified: map[string]string{
		"memory.min": "1", "memory.low": "max", "memory.high": "9223372036854775807", "memory.swap.max": "0",
		"pids.max": "7"}})
	want := cgroup.Limits{MemoryMin: "1", MemoryLow: "max", MemoryHigh: "9223372036854775807", SwapMax: "0", PIDs: 7}
	if !reflect.DeepEqual(lim, want) || len(warnings) > 0 {
		t.Errorf("%+v %q, want %+v", lim, warnings, want)
	}
	lim, warnings = limits(&runtimeapi.LinuxContainerResources{Unified: map[string]string{
		"memory.min": "-1", "memory.low": "", "memory.high": "1Gi", "memory.swap.max": "none", "io.max": "1"}})
	said := []string{
		"the cgroup setting io.max is not supported",
		`the cgroup setting memory.high is not enforced: "1Gi" is no value of it`,
		`the cgroup setting memory.low is not enforced: "" is no value of it`,
		`the cgroup setting memory.min is not enforced: "-1" is no value of it`,
		`the cgroup setting memory.swap.max is not enforced: "none" is no value of it`,
	}
	if !reflect.DeepEqual(lim, cgroup.Limits{}) || !slices.Equal(warnings, said) {
		t.Errorf("%+v %q, want %q", lim, warnings, said)
	}
}
