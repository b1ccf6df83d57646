package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMountDir(t *testing.T) {
	for name, c := range map[string]struct {
		mt            mount
		group, parent string
		want          string // "" means an error.
	}{
		"whole tree":        {mount{root: "/", point: "/sys/fs/cgroup"}, "/user.slice/x", "", "/sys/fs/cgroup/user.slice/x"},
		"root group":        {mount{root: "/", point: "/sys/fs/cgroup"}, "/", "", "/sys/fs/cgroup"},
		"part of a tree":    {mount{root: "/docker/1", point: "/sys/fs/cgroup"}, "/docker/1/y", "", "/sys/fs/cgroup/y"},
		"another part":      {mount{root: "/docker/1", point: "/sys/fs/cgroup"}, "/docker/2", "", ""},
		"outside namespace": {mount{root: "/", point: "/sys/fs/cgroup"}, "/../x", "", ""},
		"not a member":      {mount{root: "/", point: "/sys/fs/cgroup"}, "", "", ""},
		"configured":        {mount{root: "/", point: "/sys/fs/cgroup"}, "/x", "monoplane", "/sys/fs/cgroup/monoplane"},
		"of the server":     {mount{root: "/", point: "/sys/fs/cgroup"}, "/x/" + Server, "", "/sys/fs/cgroup/x"},
		"no way out":        {mount{root: "/", point: "/sys/fs/cgroup"}, "/x", "../../etc", "/sys/fs/cgroup/etc"},
	} {
		if got, err := c.mt.dir(c.group, c.parent); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
}

func TestReadProc(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	mounts, err := readMounts(write("mountinfo", "22 27 0:21 / /proc rw shared:1 - proc proc rw\n"+
		"30 25 0:26 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"+
		"31 25 0:27 /x /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\nnonsense\n"))
	if err != nil || len(mounts) != 2 || !mounts[0].controllers[cpu] || mounts[0].unified || !mounts[1].unified ||
		mounts[1].root != "/x" {
		t.Errorf("%+v %v", mounts, err)
	}
	own, err := readOwn(write("cgroup", "9:name=systemd:/\n4:cpu,cpuacct:/a:b\n0::/u\n"))
	if err != nil || own[cpu] != "/a:b" || own[""] != "/u" || own[memory] != "" {
		t.Errorf("%v %v", own, err)
	}
}

// The zero Manager makes no groups, and says of every limit that it is not enforced.
func TestNoGroups(t *testing.T) {
	var m Manager
	pod := m.Pod("id")
	if shim, err := m.MakePod(pod); shim != "" || err != nil {
		t.Errorf("%q %v", shim, err)
	}
	g, warnings, err := m.MakeContainer(pod, "c", Limits{MemoryBytes: 1, CPUQuota: 1, PIDs: 1, CPUs: "0",
		CPUShares: 1024}, Limits{MemoryBytes: 1})
	if err != nil || g.Unified != "" || len(g.V1) != 0 || len(warnings) != 4 {
		t.Errorf("%+v %q %v", g, warnings, err)
	}
	for _, w := range warnings {
		if !strings.Contains(w, "is not enforced: no cgroup with that controller is writable") {
			t.Errorf("%q", w)
		}
	}
	unenforced, failures := m.LimitPod(pod, nil, Limits{MemoryBytes: 1, CPUShares: 1024})
	if len(unenforced) != 1 || len(failures) > 0 {
		t.Errorf("%q %q", unenforced, failures)
	}
	if u := Stats(g); u.CPUNanos >= 0 || u.MemoryBytes >= 0 {
		t.Errorf("%+v", u)
	}
}

func TestSettings(t *testing.T) {
	got := map[string]string{}
	for _, s := range (Limits{MemoryBytes: 5, CPUQuota: 20_000, CPUShares: 1024, PIDs: 3, CPUs: "0-1"}).settings() {
		for _, v := range append(s.v2, s.v1...) {
			got[v.file] = v.value
		}
	}
	for file, want := range map[string]string{
		"memory.max": "5", "memory.swap.max": "0", "memory.memsw.limit_in_bytes": "5", "memory.limit_in_bytes": "5",
		"cpu.max": "20000 100000", "cpu.cfs_quota_us": "20000",
		"cpu.cfs_period_us": "100000", "cpu.weight": "39", "cpu.shares": "1024", "pids.max": "3", "cpuset.cpus": "0-1",
	} {
		if got[file] != want {
			t.Errorf("%s = %q, want %q", file, got[file], want)
		}
	}
	if len(Limits{}.settings()) != 0 {
		t.Error("no limits make settings")
	}
}
