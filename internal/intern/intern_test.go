package intern

import (
	"fmt"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

func container(name string) *corev1.Container {
	return &corev1.Container{
		Name: name, Image: "host", Env: []*corev1.EnvVar{{Name: "A", Value: "b"}},
		Resources: &corev1.ResourceRequirements{Requests: map[string]*metav1.Quantity{"cpu": {String_: "1"},
			"memory": {String_: "1Gi"}}},
	}
}

func TestEqualPartsAreShared(t *testing.T) {
	var p Pool
	a, b, c := Message(&p, container("a")), Message(&p, container("a")), Message(&p, container("c"))
	if a != b || a == c || c.GetName() != "c" {
		t.Errorf("%p %p %p", a, b, c)
	}
	// The same bytes mean something else in another message.
	if s, n := Message(&p, &metav1.Quantity{String_: "x"}), Message(&p, &corev1.PodIP{Ip: "x"}); s.GetString_() != "x" ||
		n.GetIp() != "x" {
		t.Error("messages of different types were mixed up")
	}
	if Message(&p, (*corev1.Affinity)(nil)) != nil {
		t.Error("nil became something")
	}
	s := []*corev1.Container{container("a"), container("d")}
	if Each(&p, s, nil); s[0] != a || s[1].GetName() != "d" {
		t.Errorf("slice: %v", s)
	}
}

// The parts of a compound are shared only when no equal compound is known.
func TestCompound(t *testing.T) {
	var p Pool
	spec := func() *corev1.PodSpec { return &corev1.PodSpec{Containers: []*corev1.Container{container("a")}} }
	calls := 0
	share := func(p *Pool, s *corev1.PodSpec) {
		calls++
		Each(p, s.Containers, nil)
	}
	a := Compound(&p, spec(), share)
	if b := Compound(&p, spec(), share); a != b || calls != 1 {
		t.Errorf("%p %p, parts shared %d times", a, b, calls)
	}
	if Message(&p, container("a")) != a.Containers[0] {
		t.Error("the container in it is not shared")
	}
	other := spec()
	other.NodeName = "n"
	if o := Compound(&p, other, share); o == a || o.Containers[0] != a.Containers[0] || calls != 2 {
		t.Error("parts of different compounds are not shared")
	}
}

func TestMaps(t *testing.T) {
	var p Pool
	a := Map(&p, map[string]string{"k": "v", "l": "w"})
	b := Map(&p, map[string]string{"l": "w", "k": "v"})
	a["new"] = "x" // only a test may
	if b["new"] != "x" {
		t.Error("equal maps are not shared")
	}
	for i, m := range []map[string]string{nil, {}, {"a": "bc"}, {"ab": "c"}, {"a": "b", "c": ""}, {"a": "b\x01c"}} {
		if got := Map(&p, m); fmt.Sprint(got) != fmt.Sprint(m) || (got == nil) != (m == nil) {
			t.Errorf("map %d: %v became %v", i, m, got)
		}
	}
}

// A pool stays small whatever it meets, and keeps what is met again and again.
func TestPoolIsBounded(t *testing.T) {
	var p Pool
	kept := Message(&p, container("kept"))
	for i := range 5 * generation {
		Message(&p, container(fmt.Sprint(i)))
		if i%100 == 0 && Message(&p, container("kept")) != kept {
			t.Fatalf("forgotten after %d others", i)
		}
	}
	if len(p.young) > generation || len(p.old) > generation {
		t.Errorf("%d and %d parts are kept", len(p.young), len(p.old))
	}
	big := container("big")
	big.Args = []string{string(make([]byte, largest))}
	if Message(&p, big) != big || Message(&p, proto.CloneOf(big)) == big {
		t.Error("a large part is kept")
	}
	bad := container("\xff")
	if Message(&p, bad) != bad {
		t.Error("a part that cannot be encoded was replaced")
	}
}

func TestConcurrentUse(t *testing.T) {
	var p Pool
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 1000 {
				name := fmt.Sprint(i % 50)
				if got := Message(&p, container(name)).GetName(); got != name {
					t.Errorf("%s became %s", name, got)
				}
				Map(&p, map[string]string{"a": name})
			}
		})
	}
	all.Wait()
}

func BenchmarkMessage(b *testing.B) {
	var p Pool
	c := container("a")
	b.ReportAllocs()
	for b.Loop() {
		Message(&p, c)
	}
}
