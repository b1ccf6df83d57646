package podcgroup_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/podcgroup"
)

// tree makes files such as the kernel makes in groups.
func tree(t *testing.T, files ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, f := range files {
		path := filepath.Join(root, f)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func text(t *testing.T, parts ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

var limits = &runtimeapi.LinuxContainerResources{CpuShares: 512, CpuQuota: 150000, CpuPeriod: 100000,
	MemoryLimitInBytes: 1 << 20, Unified: map[string]string{"memory.low": "1000", "pids.max": "50"},
	HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 4 << 20}}}

func TestParent(t *testing.T) {
	for class, want := range map[string][2]string{
		"Guaranteed": {"/monoplane/poda-b", "monoplane-poda_b.slice"},
		"Burstable":  {"/monoplane/burstable/poda-b", "monoplane-burstable-poda_b.slice"},
		"BestEffort": {"/monoplane/besteffort/poda-b", "monoplane-besteffort-poda_b.slice"},
	} {
		for i, command := range []func(context.Context, ...string) error{nil, podcgroup.Systemctl} {
			if got := podcgroup.New(t.TempDir(), command).Parent("a-b", class); got != want[i] {
				t.Errorf("%s: %s, want %s", class, got, want[i])
			}
		}
	}
}

// spec: QOS-3, INIT-8
func TestVersionOne(t *testing.T) {
	const pod, other = "monoplane/burstable/podu", "monoplane/burstable/podo"
	root := tree(t, "cpu/"+pod+"/cpu.shares", "cpu/"+pod+"/cpu.cfs_period_us", "cpu/"+pod+"/cpu.cfs_quota_us",
		"memory/"+pod+"/memory.limit_in_bytes", "hugetlb/"+pod+"/hugetlb.2MB.limit_in_bytes",
		"cpu/"+other+"/cpu.shares", "cpu/monoplane/burstable/cpu.shares", "pids/"+pod+"/pids.max")
	if err := os.WriteFile(filepath.Join(root, "cpu", other, "cpu.shares"), []byte("100\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := podcgroup.New(root, nil)
	if err := g.Prepare("u", "Burstable", limits); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"cpu/" + pod + "/cpu.shares": "512", "cpu/" + pod + "/cpu.cfs_quota_us": "150000",
		"cpu/" + pod + "/cpu.cfs_period_us": "100000", "memory/" + pod + "/memory.limit_in_bytes": "1048576",
		"hugetlb/" + pod + "/hugetlb.2MB.limit_in_bytes": "4194304", "cpu/monoplane/burstable/cpu.shares": "614",
		"pids/" + pod + "/pids.max": "50",
	} {
		if got := text(t, root, file); got != want {
			t.Errorf("%s: %q, want %s", file, got, want)
		}
	}
	if err := g.Prepare("u", "Burstable", &runtimeapi.LinuxContainerResources{CpuShares: 2}); err != nil {
		t.Fatal(err)
	}
	if got := text(t, root, "memory", pod, "memory.limit_in_bytes") + " " + text(t, root, "cpu", pod,
		"cpu.cfs_quota_us"); got != "-1 -1" {
		t.Errorf("without limits: %s", got)
	}
	// A group of the kernel has no files that keep it from being removed.
	for _, dir := range []string{"cpu", "memory", "hugetlb", "pids"} {
		files, _ := filepath.Glob(filepath.Join(root, dir, pod, "*"))
		for _, f := range files {
			if err := os.Remove(f); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(g.Remove("u", "Burstable"), g.Remove("u", "Burstable")); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"cpu", "memory", "hugetlb", "pids"} {
		if _, err := os.Stat(filepath.Join(root, dir, pod)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if got := text(t, root, "cpu/monoplane/burstable/cpu.shares"); got != "102" {
		t.Errorf("the class has %s shares", got)
	}
}

// spec: QOS-3, INIT-8
func TestVersionTwo(t *testing.T) {
	const pod = "monoplane/podu"
	root := tree(t, "cgroup.controllers", "cgroup.subtree_control", "monoplane/cgroup.controllers",
		"monoplane/cgroup.subtree_control", pod+"/cpu.weight", pod+"/cpu.max", pod+"/memory.max", pod+"/memory.low",
		pod+"/hugetlb.2MB.max", pod+"/pids.max", "monoplane/memory.low")
	if err := os.WriteFile(filepath.Join(root, "monoplane/cgroup.controllers"), []byte("memory\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := podcgroup.New(root, nil)
	if err := g.Prepare("u", "Guaranteed", limits); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"cpu.weight": "20", "cpu.max": "150000 100000", "memory.max": "1048576", "memory.low": "1000",
		"hugetlb.2MB.max": "4194304", "pids.max": "50", "../cgroup.subtree_control": "+memory",
	} {
		if got := text(t, root, pod, file); got != want {
			t.Errorf("%s: %q, want %s", file, got, want)
		}
	}
	if err := g.Prepare("u", "Guaranteed", &runtimeapi.LinuxContainerResources{}); err != nil {
		t.Fatal(err)
	}
	if got := text(t, root, pod, "memory.max") + " " + text(t, root, pod, "cpu.max"); got != "max max 100000" {
		t.Errorf("without limits: %s", got)
	}
}

// What pods reserve is reserved in the groups above them, as long as they do.
//
// spec: QOS-3
func TestReservations(t *testing.T) {
	dirs := []string{"", "monoplane/", "monoplane/podg/", "monoplane/burstable/", "monoplane/burstable/poda/",
		"monoplane/burstable/podb/"}
	var files []string
	for _, dir := range dirs {
		for _, f := range []string{"cgroup.controllers", "cgroup.subtree_control", "cpu.weight", "cpu.max", "memory.max"} {
			files = append(files, dir+f)
		}
		if dir != "" { // The root of the tree has no such settings.
			files = append(files, dir+"memory.min", dir+"memory.low")
		}
	}
	root := tree(t, files...)
	g := podcgroup.New(root, nil)
	set := func(uid, class, min, low string) {
		t.Helper()
		unified := map[string]string{}
		if min != "" {
			unified["memory.min"] = min
		}
		if low != "" {
			unified["memory.low"] = low
		}
		if err := g.Prepare(uid, class, &runtimeapi.LinuxContainerResources{Unified: unified}); err != nil {
			t.Fatal(err)
		}
	}
	look := func(when string, want ...string) {
		t.Helper()
		for i, dir := range dirs[1:] {
			if got := text(t, root, dir, "memory.min") + " " + text(t, root, dir, "memory.low"); got != want[i] {
				t.Errorf("%s: %s has %s, want %s", when, dir, got, want[i])
			}
		}
	}
	set("g", "Guaranteed", "100", "")
	set("a", "Burstable", "", "20")
	set("b", "Burstable", "", "3")
	look("three pods", "100 23", "100 0", "0 23", "0 20", "0 3")
	set("b", "Burstable", "", "")
	look("one reserves nothing any more", "100 20", "100 0", "0 20", "0 20", "0 0")
	if err := os.RemoveAll(filepath.Join(root, dirs[2])); err != nil {
		t.Fatal(err)
	}
	if err := g.Remove("g", "Guaranteed"); err != nil {
		t.Fatal(err)
	}
	if got := text(t, root, dirs[1], "memory.min"); got != "0" {
		t.Errorf("one has gone: %s", got)
	}
}

// A limit that cannot be set is an error, unless there is none.
func TestControllersThatAreMissing(t *testing.T) {
	for _, root := range []string{tree(t, "cpu/x"), tree(t, "cgroup.controllers", "cgroup.subtree_control",
		"monoplane/cgroup.controllers")} {
		g := podcgroup.New(root, nil)
		if err := g.Prepare("u", "Guaranteed", limits); err == nil || !strings.Contains(err.Error(), "memory") {
			t.Errorf("%s: %v", root, err)
		}
	}
	g := podcgroup.New(tree(t, "cgroup.controllers", "cgroup.subtree_control", "monoplane/cgroup.controllers"), nil)
	if err := g.Prepare("u", "Guaranteed", &runtimeapi.LinuxContainerResources{}); err != nil {
		t.Error(err)
	}
}

func TestSystemd(t *testing.T) {
	var ran []string
	g := podcgroup.New(t.TempDir(), func(_ context.Context, args ...string) error {
		ran = append(ran, strings.Join(args, " "))
		return nil
	})
	if err := errors.Join(g.Prepare("a-b", "Burstable", limits), g.Settle(t.Context(), "a-b", "Burstable", limits),
		g.Remove("a-b", "Burstable")); err != nil {
		t.Fatal(err)
	}
	const want = "set-property --runtime monoplane-burstable-poda_b.slice CPUWeight=20 CPUQuota=150% MemoryMax=1048576 " +
		"MemoryLow=1000 TasksMax=50"
	if len(ran) != 1 || ran[0] != want {
		t.Errorf("%q, want %s", ran, want)
	}
}
