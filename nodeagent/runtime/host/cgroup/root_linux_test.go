package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Below a parent of its own, the runtime of root has every controller that the machine has in cgroup2, also those that
// a service manager has had no use for so far, and a limit of each holds.
//
// spec: CTR-10
func TestRootControllers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it takes root to make cgroups")
	}
	m := DiscoverAll(fmt.Sprintf("/mp-test-%d/deeper", os.Getpid()))
	if m.unified == "" {
		t.Skip(m.why)
	}
	above := filepath.Dir(m.unified)
	there, err := os.ReadFile(filepath.Join(filepath.Dir(above), "cgroup.controllers"))
	if err != nil {
		t.Fatal(err)
	}
	pod := m.Pod("p")
	t.Cleanup(func() {
		for _, of := range append(pod.V1, pod.Unified) {
			parent := filepath.Dir(of)
			for _, d := range []string{filepath.Join(of, "c"), filepath.Join(of, "shim"), of, parent, filepath.Dir(parent)} {
				if err := os.Remove(d); err != nil && !os.IsNotExist(err) {
					t.Error(err)
				}
			}
		}
	})
	if _, err := m.MakePod(pod); err != nil {
		t.Fatal(err)
	}
	lim := Limits{MemoryBytes: 1 << 26, CPUQuota: 50_000, CPUShares: 512, PIDs: 20, CPUs: "0",
		HugePages: map[string]int64{"2MB": 1 << 21}}
	g, warnings, err := m.MakeContainer(pod, "c", lim, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	unenforced, failures := m.LimitPod(pod, nil, lim)
	warnings = slices.Concat(warnings, unenforced, failures)
	for _, s := range lim.settings() {
		if !slices.Contains(strings.Fields(string(there)), s.controller) {
			continue // Where it is one of cgroup v1, or the kernel has none.
		}
		for _, dir := range []string{g.Unified, pod.Unified} {
			for _, v := range s.v2 {
				got, err := os.ReadFile(filepath.Join(dir, v.file))
				if v.file != swapFile && (err != nil || strings.TrimSpace(string(got)) != v.value) {
					t.Errorf("%s: %q, want %q: %v", v.file, got, v.value, err)
				}
			}
		}
		for _, w := range warnings {
			if s.what != "" && strings.HasPrefix(w, s.what) {
				t.Error(w)
			}
		}
	}
	t.Logf("the machine has %q; warnings: %q", strings.Fields(string(there)), warnings)
}
