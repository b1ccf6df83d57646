package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"monoplane.dev/nodeagent/runtime/host/sys"
)

// made returns a Manager of a directory with files such as the kernel makes in cgroup2, below a parent that was
// configured, and the groups of a pod and its container, which are there. Files named in without are missing.
func made(t *testing.T, without ...string) (m *Manager, pod, c sys.Cgroup) {
	t.Helper()
	top := t.TempDir()
	parent := filepath.Join(top, "parent")
	m = &Manager{unified: parent, above: []string{top}}
	pod = m.Pod("p")
	c = sys.Cgroup{Unified: filepath.Join(pod.Unified, "c")}
	for _, dir := range []string{top, parent, pod.Unified, c.Unified} {
		for file, text := range map[string]string{
			"cgroup.controllers": "memory\n", "cgroup.subtree_control": "memory\n", "memory.min": "0\n", "memory.low": "0\n",
			"memory.high": "max\n", "memory.max": "max\n", "memory.swap.max": "max\n",
		} {
			if slices.Contains(without, file) {
				continue
			}
			if err := errors.Join(os.MkdirAll(dir, 0o700),
				os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return m, pod, c
}

// settled reads the settings of memory in a group, in the order min, low, high, max and of swap.
func settled(t *testing.T, dir string) string {
	t.Helper()
	var out []string
	for _, name := range []string{"memory.min", "memory.low", "memory.high", "memory.max", "memory.swap.max"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			b = []byte("-")
		case err != nil:
			t.Fatal(err)
		}
		out = append(out, strings.TrimSpace(string(b)))
	}
	return strings.Join(out, " ")
}

// A container gets the settings of memory that it asks for, others when they change, and what the kernel has when it
// does not ask for them any more. A limit that is not in an update stays, as elsewhere.
//
// spec: QOS-3, OBJ-10
func TestMemorySettings(t *testing.T) {
	m, pod, c := made(t)
	steps := []struct {
		lim  Limits
		want string
	}{
		{Limits{MemoryLow: "10", MemoryHigh: "80", MemoryBytes: 100}, "0 10 80 100 0"},
		{Limits{MemoryLow: "20", MemoryHigh: "80", MemoryBytes: 100}, "0 20 80 100 0"},
		{Limits{MemoryMin: "20", MemoryHigh: "40", MemoryBytes: 50, SwapMax: "7"}, "20 0 40 50 7"},
		{Limits{MemoryMin: "20", MemoryHigh: "max", MemoryBytes: 60, SwapMax: "7"}, "20 0 max 60 7"},
		{Limits{MemoryBytes: 60, SwapMax: "max"}, "0 0 max 60 max"},
		{Limits{MemoryBytes: 60}, "0 0 max 60 0"},
		{Limits{SwapMax: "max"}, "0 0 max 60 max"},
		{Limits{SwapMax: "0"}, "0 0 max 60 0"},
		{Limits{}, "0 0 max 60 0"},
	}
	if _, warnings, err := m.MakeContainer(pod, "c", steps[0].lim, Limits{}); len(warnings) > 0 || err != nil {
		t.Fatal(warnings, err)
	}
	was := steps[0].lim
	for i, s := range steps {
		same, others := s.lim.Split(was)
		for _, lim := range []Limits{same, others} {
			if unenforced, failures := m.Update(pod, c, lim); len(unenforced)+len(failures) > 0 {
				t.Errorf("step %d: %q %q", i, unenforced, failures)
			}
		}
		if got := settled(t, c.Unified); got != s.want {
			t.Errorf("step %d: %s, want %s", i, got, s.want)
		}
		was = s.lim
	}
}

// What a pod reserves is reserved in the group above too, together with the others', since the kernel keeps no more
// for a group than for the one above it; until the pod reserves nothing, or has gone.
//
// spec: QOS-3, INIT-8
func TestMemoryOfPods(t *testing.T) {
	m, pod, _ := made(t)
	limit := func(lim Limits, want, above string) {
		t.Helper()
		if unenforced, failures := m.LimitPod(pod, nil, lim); len(unenforced)+len(failures) > 0 {
			t.Errorf("%q %q", unenforced, failures)
		}
		if got := settled(t, pod.Unified); got != want {
			t.Errorf("the pod has %s, want %s", got, want)
		}
		if got := settled(t, m.unified); got != above {
			t.Errorf("above it is %s, want %s", got, above)
		}
	}
	other := m.Pod("other").Unified
	if err := errors.Join(os.Mkdir(other, 0o700), os.WriteFile(filepath.Join(other, "memory.min"), []byte("5\n"), 0o600),
		os.WriteFile(filepath.Join(other, "memory.low"), []byte("7\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	limit(Limits{MemoryMin: "30", MemoryBytes: 100}, "30 0 max 100 0", "35 7 max max max")
	limit(Limits{MemoryLow: "40", MemoryHigh: "50"}, "0 40 50 100 0", "5 47 max max max")
	limit(Limits{MemoryMin: "max"}, "max 0 max 100 0", "max 7 max max max")
	limit(Limits{}, "0 0 max 100 0", "5 7 max max max")
	if err := errors.Join(os.RemoveAll(other), m.Reserve()); err != nil {
		t.Fatal(err)
	}
	limit(Limits{}, "0 0 max 100 0", "0 0 max max max")
	m.above = nil // As with the group in which somebody has started this process, which is not ours to change.
	limit(Limits{MemoryMin: "30"}, "30 0 max 100 0", "0 0 max max max")
}

// A kernel that does not count swap lets nobody be limited there, and nobody is told, as there is nothing to miss.
//
// spec: QOS-3
func TestSwapIsNotCounted(t *testing.T) {
	m, pod, c := made(t, swapFile)
	for _, lim := range []Limits{{SwapMax: "0"}, {MemoryBytes: 50, SwapMax: "0"}, {MemoryBytes: 60}} {
		_, warnings, err := m.MakeContainer(pod, "c", lim, Limits{})
		unenforced, failures := m.Update(pod, c, lim)
		ofPod, failuresOfPod := m.LimitPod(pod, nil, lim)
		warnings = slices.Concat(warnings, unenforced, failures, ofPod, failuresOfPod)
		if len(warnings) > 0 || err != nil {
			t.Errorf("%+v: %q %v", lim, warnings, err)
		}
	}
	if got := settled(t, c.Unified); got != "0 0 max 60 -" {
		t.Errorf("%s", got)
	}
}

// Where memory is a matter of cgroup v1, or of none, it is told what cannot be set, and no group is made for it.
//
// spec: QOS-3
func TestMemorySettingsOfVersionOne(t *testing.T) {
	v1 := t.TempDir()
	const only, none = "cgroup v1 has no such setting", "no cgroup with that controller is writable"
	for name, c := range map[string]struct {
		m    *Manager
		told string
	}{
		"version one": {&Manager{v1: map[string]string{memory: v1}}, only},
		"none":        {&Manager{}, none},
	} {
		pod := c.m.Pod("p")
		lim := Limits{MemoryMin: "1", MemoryLow: "2", MemoryHigh: "3", SwapMax: "0"}
		g, made, err := c.m.MakeContainer(pod, "c", lim, lim)
		if err != nil || len(g.V1) > 0 {
			t.Errorf("%s: %+v %v", name, g, err)
		}
		updated, failures := c.m.Update(pod, g, lim)
		ofPod, failuresOfPod := c.m.LimitPod(pod, nil, lim)
		if len(failures)+len(failuresOfPod) > 0 {
			t.Errorf("%s: %q %q", name, failures, failuresOfPod)
		}
		for of, got := range map[string][]string{"made": made, "update": updated, "pod": ofPod} {
			why := " is not enforced: " + c.told
			want := "memory.min" + why + "|memory.low" + why + "|memory.high" + why + "|the limit of swap" + why
			if got := strings.Join(got, "|"); got != want {
				t.Errorf("%s, %s: %q, want %q", name, of, got, want)
			}
		}
		nothing := Limits{MemoryMin: "0", MemoryLow: "0", MemoryHigh: Unbounded}
		_, w, _ := c.m.MakeContainer(pod, "c", nothing, Limits{})
		updated, failures = c.m.Update(pod, g, nothing)
		ofPod, failuresOfPod = c.m.LimitPod(pod, nil, nothing)
		if w = slices.Concat(w, updated, failures, ofPod, failuresOfPod); len(w) > 0 {
			t.Errorf("%s: what holds anyway is told: %q", name, w)
		}
	}
	if left, err := os.ReadDir(v1); err != nil || len(left) > 0 {
		t.Errorf("groups were made: %v %v", left, err)
	}
}

// A container that was started without a group for a limit cannot get it later, which is a failure where a container
// that is started now could have it, and no more than told where none could.
//
// spec: CTR-10, OBJ-10
func TestUpdateWithoutGroup(t *testing.T) {
	const lacks = "the memory limit is not enforced: the container was started without a cgroup for it"
	const none = "the memory limit is not enforced: no cgroup with that controller is writable"
	v1 := t.TempDir()
	two, pod, c := made(t)
	if err := os.WriteFile(filepath.Join(c.Unified, "cgroup.controllers"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	bare := &Manager{unified: t.TempDir()}
	one := &Manager{v1: map[string]string{memory: v1}}
	for name, w := range map[string]struct {
		m                    *Manager
		pod, c               sys.Cgroup
		unenforced, failures string
	}{
		"version one": {one, one.Pod("p"), sys.Cgroup{}, "", lacks},
		"version two": {two, pod, c, "", lacks},
		"none":        {&Manager{}, sys.Cgroup{}, sys.Cgroup{}, none, ""},
		"without controllers": {bare, bare.Pod("p"), sys.Cgroup{Unified: filepath.Join(bare.Pod("p").Unified, "c")},
			"the memory limit is not enforced: the memory controller is not available in " + bare.unified, ""},
	} {
		unenforced, failures := w.m.Update(w.pod, w.c, Limits{MemoryBytes: 100})
		if strings.Join(unenforced, "|") != w.unenforced || strings.Join(failures, "|") != w.failures {
			t.Errorf("%s: %q, failures %q", name, unenforced, failures)
		}
	}
}

// What is reclaimed at is set before the limit, which would kill.
func TestMemorySettingsInOrder(t *testing.T) {
	var got []string
	lim := Limits{MemoryMin: "1", MemoryLow: "2", MemoryHigh: "3", MemoryBytes: 4, SwapMax: "5"}
	for _, s := range lim.settings() {
		for _, v := range s.v2 {
			got = append(got, v.file)
		}
	}
	want := []string{"memory.min", "memory.low", "memory.high", "memory.max", "memory.swap.max"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Of two sets of limits, what one has like the other and what differs are the whole, for each limit that there is.
func TestSplitIsWhole(t *testing.T) {
	all := Limits{MemoryBytes: 1, MemoryMin: "2", MemoryLow: "3", MemoryHigh: "4", SwapMax: "5", CPUQuota: 6,
		CPUPeriod: 7, CPUShares: 8, PIDs: 9, CPUs: "10"}
	v := reflect.ValueOf(&all).Elem()
	for i := range v.NumField() {
		if f := v.Type().Field(i).Name; f == "HugePages" { // which never change while a container runs
			continue
		} else if v.Field(i).IsZero() {
			t.Errorf("%s is not looked at", f)
		}
	}
	same, others := all.Split(all)
	if !reflect.DeepEqual(same, all) || len(others.settings()) > 0 {
		t.Errorf("of itself: %+v, %+v", same, others)
	}
	same, others = all.Split(Limits{})
	if !reflect.DeepEqual(others, all) || len(same.settings()) > 0 {
		t.Errorf("of none: %+v, %+v", same, others)
	}
}
