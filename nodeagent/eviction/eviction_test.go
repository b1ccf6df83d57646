package eviction_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/nodeagent/eviction"
)

func mustThresholds(t *testing.T, s eviction.Settings) []eviction.Threshold {
	t.Helper()
	out, err := s.Thresholds()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSettings(t *testing.T) {
	got := mustThresholds(t, eviction.Settings{
		Hard: map[string]string{"memory.available": "100Mi", "nodefs.available": "0%"},
		Soft: map[string]string{"pid.available": "10%"}, SoftGrace: map[string]string{"pid.available": "30s"},
		MinimumReclaim: map[string]string{"memory.available": "1Gi"},
	})
	want := []eviction.Threshold{
		{Signal: eviction.Memory, Value: eviction.Amount{Quantity: 100 << 20}, Reclaim: eviction.Amount{Quantity: 1 << 30}},
		{Signal: eviction.AllocatableMemory, Value: eviction.Amount{Quantity: 100 << 20},
			Reclaim: eviction.Amount{Quantity: 1 << 30}},
		{Signal: eviction.PIDs, Value: eviction.Amount{Share: 0.1}, Grace: 30 * time.Second},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if len(mustThresholds(t, eviction.Settings{})) == 0 {
		t.Error("there are no thresholds by default")
	}
	for text, s := range map[string]eviction.Settings{
		"is no signal":                   {Hard: map[string]string{"memory.free": "1"}},
		"is no percentage":               {Hard: map[string]string{"memory.available": "101%"}},
		"is no amount":                   {Hard: map[string]string{"memory.available": "x"}},
		"invalid duration":               {Soft: map[string]string{"memory.available": "1"}},
		"must be positive":               {Soft: map[string]string{"memory.available": "1"}, SoftGrace: map[string]string{"memory.available": "0s"}},
		"there is no such soft":          {SoftGrace: map[string]string{"memory.available": "1s"}},
		"minimum reclaim of x: there is": {MinimumReclaim: map[string]string{"x": "1"}},
	} {
		if _, err := s.Thresholds(); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %q", err, text)
		}
	}
}

// Every step says what is read at which second, and what comes of it. spec: QOS-2
func TestPressure(t *testing.T) {
	p := eviction.NewPressure(mustThresholds(t, eviction.Settings{
		Hard: map[string]string{"memory.available": "10%", "nodefs.available": "50"},
		Soft: map[string]string{"memory.available": "20%"}, SoftGrace: map[string]string{"memory.available": "30s"},
		MinimumReclaim: map[string]string{"nodefs.available": "25"},
	}), 5*time.Minute)
	for _, step := range []struct {
		at                 int
		memory, nodefs     int64
		conditions, signal string
	}{
		{0, 500, 500, "", ""},
		{10, 199, 500, "MemoryPressure", ""}, // soft: not long enough
		{20, 200, 500, "MemoryPressure", ""}, // begins anew
		{30, 199, 500, "MemoryPressure", ""},
		{59, 199, 500, "MemoryPressure", ""},
		{60, 199, 500, "MemoryPressure", "memory.available soft"},
		{70, 99, 49, "DiskPressure MemoryPressure",
			"memory.available hard,memory.available soft,nodefs.available hard"},
		{80, 500, 74, "DiskPressure MemoryPressure", "nodefs.available hard"}, // until 75 are free
		{90, 500, 75, "DiskPressure MemoryPressure", ""},
		{100, 500, 74, "DiskPressure MemoryPressure", ""},
		{370, 500, 500, "DiskPressure", ""}, // memory was short at 70 s last
		{380, 500, 500, "", ""},
	} {
		v := p.Observe(time.Unix(int64(step.at), 0), eviction.Readings{
			eviction.Memory: {Available: step.memory, Capacity: 1000},
			eviction.NodeFS: {Available: step.nodefs, Capacity: 1000},
		})
		var act []string
		for _, a := range v.Act {
			kind := "soft"
			if a.Hard() {
				kind = "hard"
			}
			act = append(act, string(a.Signal)+" "+kind)
		}
		if got := strings.Join(v.Conditions, " "); got != step.conditions || strings.Join(act, ",") != step.signal {
			t.Errorf("at %d s: %q %v, want %q %q", step.at, got, act, step.conditions, step.signal)
		}
	}
	if p.Relieved(eviction.Readings{eviction.NodeFS: {Available: 74, Capacity: 1000}}) ||
		!p.Relieved(eviction.Readings{eviction.NodeFS: {Available: 75, Capacity: 1000}}) {
		t.Error("what was reclaimed is not judged with the minimum reclaim")
	}
}

// pod makes a pod of its name: requests and usage of memory and disk, and a priority.
func pod(name string, priority int32, memory, disk string, u eviction.Usage) eviction.Pod {
	r := map[string]*metav1.Quantity{}
	if memory != "" {
		r["memory"] = &metav1.Quantity{String_: memory}
	}
	if disk != "" {
		r["ephemeral-storage"] = &metav1.Quantity{String_: disk}
	}
	return eviction.Pod{Measured: u.Memory >= 0, Usage: u, Pod: &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: name}, Spec: &corev1.PodSpec{Priority: &priority,
			Containers: []*corev1.Container{{Name: "c", Resources: &corev1.ResourceRequirements{Requests: r}}}},
	}}
}

// spec: QOS-2
func TestRank(t *testing.T) {
	all := []eviction.Pod{
		pod("within", -10, "100", "100", eviction.Usage{Memory: 100, Disk: 100, Inodes: 1, Processes: 5}),
		pod("over-important", 10, "100", "100", eviction.Usage{Memory: 900, Disk: 900, Inodes: 900, Processes: 1}),
		pod("over-little", 0, "100", "100", eviction.Usage{Memory: 110, Disk: 110, Inodes: 110, Processes: 7}),
		pod("over-much", 0, "500", "500", eviction.Usage{Memory: 700, Disk: 700, Inodes: 700, Processes: 9}),
		pod("besteffort", 0, "", "", eviction.Usage{Memory: 150, Disk: 150, Inodes: 150, Processes: 8}),
		pod("unknown", 20, "", "", eviction.Usage{Memory: -1}),
	}
	for signal, want := range map[eviction.Signal]string{
		eviction.Memory: "unknown over-much besteffort over-little over-important within",
		eviction.NodeFS: "unknown over-much besteffort over-little over-important within",
		// Nobody asks for inodes, so that all exceed what they asked for; storage stands for it.
		eviction.NodeFSInodes: "unknown within over-much besteffort over-little over-important",
		eviction.PIDs:         "within over-much besteffort over-little over-important unknown",
	} {
		pods := slices.Clone(all)
		eviction.Rank(signal, pods)
		var got []string
		for _, p := range pods {
			got = append(got, p.Pod.GetMetadata().GetName())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", signal, got, want)
		}
	}
	for i := range all {
		all[i].Critical = all[i].Pod.GetMetadata().GetName() != "within"
	}
	if p := eviction.First(eviction.Memory, all); p.Pod.GetMetadata().GetName() != "within" {
		t.Errorf("%s goes first", p.Pod.GetMetadata().GetName())
	}
	all[0].Critical = true
	if p := eviction.First(eviction.Memory, all); p != nil {
		t.Errorf("a critical pod goes: %v", p)
	}
}

func TestMessage(t *testing.T) {
	p := pod("p", 0, "100Mi", "", eviction.Usage{Memory: 300 << 20})
	p.Containers = map[string]eviction.Usage{"c": {Memory: 300 << 20}}
	r := eviction.Readings{eviction.Memory: {Available: 50 << 20, Capacity: 1 << 30}}
	want := "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. " +
		"Container c was using 300Mi, request is 100Mi, has larger consumption of memory. "
	low := eviction.Threshold{Signal: eviction.Memory, Value: eviction.Amount{Quantity: 100 << 20}}
	got := eviction.Message(low, r, &p)
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
	r = eviction.Readings{eviction.NodeFSInodes: {Available: 5, Capacity: 1000}}
	want = "The node was low on resource: inodes. Threshold quantity: 50, available: 5. "
	if got := eviction.Message(eviction.Threshold{Signal: eviction.NodeFSInodes, Value: eviction.Amount{Share: 0.05}}, r,
		&p); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// spec: DISR-6
func TestExcess(t *testing.T) {
	limited := func(limits ...string) eviction.Pod {
		p := pod("p", 0, "", "", eviction.Usage{})
		p.Pod.Spec.Containers, p.Containers = nil, map[string]eviction.Usage{}
		for i, l := range limits {
			c := &corev1.Container{Name: fmt.Sprint("c", i), Resources: &corev1.ResourceRequirements{}}
			if l != "" {
				c.Resources.Limits = map[string]*metav1.Quantity{"ephemeral-storage": {String_: l}}
			}
			p.Pod.Spec.Containers = append(p.Pod.Spec.Containers, c)
		}
		return p
	}
	p := limited("10Mi", "20Mi")
	p.Usage.Disk, p.Containers["c0"] = 30<<20, eviction.Usage{Disk: 10 << 20}
	if got := eviction.Excess(&p); got != "" {
		t.Errorf("within its limits: %q", got)
	}
	p.Containers["c0"] = eviction.Usage{Disk: 10<<20 + 1}
	if got, want := eviction.Excess(&p), `Container c0 exceeded its local ephemeral storage limit "10Mi". `; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	p.Usage.Disk++
	if got, want := eviction.Excess(&p),
		"Pod ephemeral local storage usage exceeds the total limit of containers 30Mi. "; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if p = limited("", ""); eviction.LimitsStorage(p.Pod.GetSpec()) {
		t.Error("a pod without limits is measured")
	}
	if p = limited("", "1"); !eviction.LimitsStorage(p.Pod.GetSpec()) {
		t.Error("a pod with a limit is not measured")
	}
}
