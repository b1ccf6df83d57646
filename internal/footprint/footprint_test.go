package footprint_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/internal/footprint"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// objects are as different in build as they come, each in the order of a megabyte.
func objects() map[string]object.Object {
	small, large := map[string]string{}, map[string]string{"a": strings.Repeat("x", 1<<20)}
	blobs := map[string][]byte{}
	var env []*corev1.EnvVar
	var tolerations []*corev1.Toleration
	var args []string
	for i := range 20_000 {
		small[fmt.Sprintf("k%d", i)] = fmt.Sprint(i)
		blobs[fmt.Sprintf("k%d", i)] = []byte(fmt.Sprint("value ", i))
		env = append(env, &corev1.EnvVar{Name: "A"})
		tolerations = append(tolerations, &corev1.Toleration{TolerationSeconds: proto.Int64(int64(i))})
		args = append(args, fmt.Sprint("--argument=", i))
	}
	meta := func() *metav1.ObjectMeta { return &metav1.ObjectMeta{Namespace: "default", Name: "a"} }
	return map[string]object.Object{
		"small entries":  &corev1.ConfigMap{Metadata: meta(), Data: small},
		"one large text": &corev1.ConfigMap{Metadata: meta(), Data: large},
		"binary":         &corev1.ConfigMap{Metadata: meta(), BinaryData: blobs},
		"messages": &corev1.Pod{Metadata: meta(), Spec: &corev1.PodSpec{
			Containers: []*corev1.Container{{Name: "a", Env: env, Args: args}}, Tolerations: tolerations,
		}},
	}
}

// What is counted is what the heap gives, within a third.
func TestCountsWhatTheHeapHolds(t *testing.T) {
	for name, o := range objects() {
		encoded, err := proto.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		const copies = 8
		before := heap()
		kept := make([]object.Object, copies)
		for i := range kept {
			kept[i] = o.ObjectKind().New()
			if err := proto.Unmarshal(encoded, kept[i]); err != nil {
				t.Fatal(err)
			}
		}
		held := (heap() - before) / copies
		counted := new(footprint.Meter).Of(kept[0])
		runtime.KeepAlive(kept)
		t.Logf("%s: encoded %d, held %d, counted %d", name, len(encoded), held, counted)
		if ratio := float64(counted) / float64(held); ratio < 0.67 || ratio > 1.5 {
			t.Errorf("%s: counted %d bytes, the heap holds %d", name, counted, held)
		}
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// What the next state shares is not counted: a pod whose status has changed leaves its old status behind and no more.
func TestSharedPartsAreNotCounted(t *testing.T) {
	var m footprint.Meter
	for name, o := range objects() {
		next := object.Shallow(o)
		next.SetMetadata(&metav1.ObjectMeta{Namespace: "default", Name: "a", ResourceVersion: "2"})
		if n := m.Beside(o, next); n > 1024 {
			t.Errorf("%s: %d bytes beside a state with other metadata", name, n)
		}
		if n := m.Beside(o, o); n != 0 {
			t.Errorf("%s: %d bytes beside itself", name, n)
		}
	}
	text := strings.Repeat("x", 1000)
	o := &corev1.Pod{Status: &corev1.PodStatus{Message: text,
		Conditions: []*corev1.PodCondition{{Type: "Ready", Message: text}}}}
	same := &corev1.Pod{Status: &corev1.PodStatus{Message: text, Conditions: o.Status.Conditions}}
	if n := m.Beside(o, same); n > 600 {
		t.Errorf("%d bytes beside a state with the same texts", n)
	}
	other := &corev1.Pod{Status: &corev1.PodStatus{Message: strings.Clone(text), Conditions: o.Status.Conditions}}
	if n := m.Beside(o, other) - m.Beside(o, same); n != 1000 {
		t.Errorf("a text of 1000 bytes counts as %d", n)
	}
	if n := m.Beside(o, &corev1.Node{}); n != m.Of(o) {
		t.Errorf("%d beside another kind, %d alone", n, m.Of(o))
	}
	if m.Of(nil) != 0 {
		t.Error("nothing takes memory")
	}
}

func BenchmarkBeside(b *testing.B) {
	p := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "a", Uid: "u",
			Labels: map[string]string{"a": "b", "c": "d"}},
		Spec: &corev1.PodSpec{NodeName: "n", Containers: []*corev1.Container{{Name: "a", Image: "host"}}},
		Status: &corev1.PodStatus{Phase: "Running", Conditions: []*corev1.PodCondition{
			{Type: "Ready", Status: "True"}, {Type: "PodScheduled", Status: "True"}, {Type: "Initialized", Status: "True"},
		}},
	}
	next := object.Clone(p)
	next.Spec = p.Spec
	var m footprint.Meter
	b.ReportAllocs()
	for b.Loop() {
		m.Beside(p, next)
	}
}
