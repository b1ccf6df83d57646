package validation_test

import (
	"flag"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	coordinationv1 "monoplane.dev/api/coordination/v1"
	corev1 "monoplane.dev/api/core/v1"
	eventsv1 "monoplane.dev/api/events/v1"
	metav1 "monoplane.dev/api/meta/v1"
	storagev1 "monoplane.dev/api/storage/v1"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/validation"
)

var seed = flag.Uint64("seed", 0, "seed of random tests; 0 takes the time")

func random(t *testing.T) *rand.Rand {
	t.Helper()
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("run again with -seed=%d", s)
	return rand.New(rand.NewPCG(s, 1))
}

var words = []string{"", "a", "A", "a/b", "Always", "Never", "Exists", "In", "1", "-1", "1e9999999", "Windows", "linux", "spec.nodeName", "metadata.labels['x']", "..", "\xff", "Localhost"}

// fill gives random values to everything below v; lists may hold nil.
func fill(r *rand.Rand, v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(words[r.IntN(len(words))])
	case reflect.Int32, reflect.Int64:
		v.SetInt(int64(int32(r.Uint32())) >> r.IntN(32))
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Pointer:
		if depth > 0 && r.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem(), depth-1)
		}
	case reflect.Slice:
		for range r.IntN(3) {
			e := reflect.New(v.Type().Elem()).Elem()
			fill(r, e, depth-1)
			v.Set(reflect.Append(v, e))
		}
	case reflect.Map:
		m := reflect.MakeMap(v.Type())
		for range r.IntN(3) {
			k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(r, k, 0)
			fill(r, e, depth-1)
			m.SetMapIndex(k, e)
		}
		v.Set(m)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(r, v.Field(i), depth)
			}
		}
	}
}

func randomObject[T any](r *rand.Rand) *T {
	o := new(T)
	fill(r, reflect.ValueOf(o).Elem(), 9)
	return o
}

func TestRandomObjectsNeverPanic(t *testing.T) {
	r := random(t)
	support := validation.NewSupport()
	for range 300 {
		p, old := randomObject[corev1.Pod](r), randomObject[corev1.Pod](r)
		support.Unsupported(p)
		validation.Pod(p)
		validation.PodUpdate(p, old)
		validation.PodStatusUpdate(p, old)
		defaults.NewPod(p)
		defaults.Pod(old)
		validation.Pod(p)
		validation.PodUpdate(p, old)
		n, m := randomObject[corev1.Node](r), randomObject[corev1.Node](r)
		defaults.Node(n)
		validation.Node(n)
		validation.NodeUpdate(n, m)
		s, u := randomObject[corev1.Namespace](r), randomObject[corev1.Namespace](r)
		defaults.NewNamespace(s)
		validation.Namespace(s)
		validation.NamespaceUpdate(s, u)
		validation.NamespaceStatusUpdate(s, u)
		validation.NamespaceFinalizeUpdate(s, u)
		validation.ConfigMapUpdate(randomObject[corev1.ConfigMap](r), randomObject[corev1.ConfigMap](r))
		validation.ServiceAccountUpdate(randomObject[corev1.ServiceAccount](r), randomObject[corev1.ServiceAccount](r))
		v, w := randomObject[corev1.PersistentVolume](r), randomObject[corev1.PersistentVolume](r)
		support.Unsupported(v)
		validation.PersistentVolume(v)
		validation.PersistentVolumeUpdate(v, w)
		defaults.NewPersistentVolume(v)
		validation.PersistentVolumeUpdate(v, w)
		validation.PersistentVolumeStatusUpdate(v, w)
		c, d := randomObject[corev1.PersistentVolumeClaim](r), randomObject[corev1.PersistentVolumeClaim](r)
		support.Unsupported(c)
		validation.PersistentVolumeClaim(c)
		validation.PersistentVolumeClaimUpdate(c, d)
		defaults.NewPersistentVolumeClaim(c)
		validation.PersistentVolumeClaimUpdate(c, d)
		validation.PersistentVolumeClaimStatusUpdate(c, d)
		validation.StorageClassUpdate(randomObject[storagev1.StorageClass](r), randomObject[storagev1.StorageClass](r))
		validation.LeaseUpdate(randomObject[coordinationv1.Lease](r), randomObject[coordinationv1.Lease](r))
		validation.EventUpdate(randomObject[corev1.Event](r), randomObject[corev1.Event](r))
		validation.EventsEvent(randomObject[eventsv1.Event](r))
		validation.EventsEventUpdate(randomObject[eventsv1.Event](r), randomObject[eventsv1.Event](r))
		validation.Binding(randomObject[corev1.Binding](r))
		validation.DeleteOptions(randomObject[metav1.DeleteOptions](r))
	}
	var nothing *corev1.Pod
	validation.Pod(nothing)
	validation.PodUpdate(nothing, nothing)
	validation.PodStatusUpdate(nothing, nothing)
	validation.Node(nil)
	validation.NodeUpdate(nil, nil)
	validation.Namespace(nil)
	validation.ConfigMapUpdate(nil, nil)
	validation.PersistentVolumeUpdate(nil, nil)
	validation.PersistentVolumeClaimUpdate(nil, nil)
	validation.PersistentVolumeClaimStatusUpdate(nil, nil)
	validation.StorageClassUpdate(nil, nil)
	validation.LeaseUpdate(nil, nil)
	validation.Event(nil)
	validation.EventsEventUpdate(nil, nil)
	validation.Binding(nil)
	validation.DeleteOptions(nil)
}

func FuzzPod(f *testing.F) {
	data, err := proto.Marshal(newPod())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data, data)
	support := validation.NewSupport()
	f.Fuzz(func(t *testing.T, a, b []byte) {
		p, old := &corev1.Pod{}, &corev1.Pod{}
		if proto.Unmarshal(a, p) != nil || proto.Unmarshal(b, old) != nil {
			return
		}
		support.Unsupported(p)
		validation.Pod(p)
		defaults.NewPod(p)
		defaults.Pod(old)
		again := proto.CloneOf(old)
		defaults.Pod(again)
		if !proto.Equal(old, again) {
			t.Error("defaults are not idempotent")
		}
		validation.PodUpdate(p, old)
		validation.PodStatusUpdate(p, old)
		for _, c := range validation.Pod(p) {
			if c.Type == "" || c.Message == "" {
				t.Errorf("bad cause %+v", c)
			}
		}
		if !validation.Equal(p.Spec, p.Spec) {
			t.Error("a spec does not equal itself")
		}
	})
}

func BenchmarkPod(b *testing.B) {
	p := newPod()
	p.Metadata.Labels = map[string]string{"app": "bench", "tier": "backend", "example.com/release": "2026-11"}
	p.Metadata.Annotations = map[string]string{"example.com/owner": "team-bench", "example.com/note": "one of many"}
	c := p.Spec.Containers[0]
	c.Resources = &corev1.ResourceRequirements{Limits: amounts("cpu", "500m", "memory", "64Mi")}
	c.Ports = []*corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: "TCP"}}
	c.Env = []*corev1.EnvVar{{Name: "MODE", Value: "bench"}, {Name: "LEVEL", Value: "info"}}
	support := validation.NewSupport()
	full := p.Clone()
	defaults.NewPod(full)
	b.Run("defaults", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			defaults.NewPod(p.Clone())
		}
	})
	b.Run("unsupported", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if refused, stored := support.Unsupported(full); len(refused)+len(stored) > 0 {
				b.Fatal(refused, stored)
			}
		}
	})
	b.Run("validate", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if wrong := validation.Pod(full); len(wrong) > 0 {
				b.Fatal(wrong)
			}
		}
	})
}
