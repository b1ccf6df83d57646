package codec_test

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"time"

	k8sapps "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	k8smeta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// filler gives Kubernetes objects random contents that protobuf can carry: nil instead of empty lists, whole
// seconds, valid UTF-8.
type filler struct {
	rng *rand.Rand
	// density is how likely a field is set.
	density float64
}

var (
	words = []string{
		"a", "default", "nginx:1.27", "kube-system", "", "Always", "TCP", "x y", "<html>&amp;", "quote\"back\\slash",
		"tab\tnewline\nreturn\rbell\b\f\x01\x7f", "über", "日本語", "\u2028\u2029", "😀", "\ufffd", "/var/log/pods",
		strings.Repeat("long-", 40), "app.kubernetes.io/name", "null", "true", "0",
	}
	quantities = []string{
		"0", "1", "100m", "1500m", "1000m", "2Gi", "1024Mi", "0.5", "1e3", "12E", "1u", "5n", "-3", "1Ki", "1023", "1024",
		"999999999999Gi",
		"1.5Gi", "100k", "1000", "0.1m", "3Ti", "+7", "0Mi", "8P", "1E", "500M", "007",
	}
	rawValues = []string{`{}`, `{"f:metadata":{"f:labels":{".":{}}}}`, `{"a":[1,2.5e3,null,true,"<x>"]}`}
)

func (f *filler) fill(v reflect.Value, depth int) {
	switch p := v.Addr().Interface().(type) {
	case *k8smeta.TypeMeta:
		return
	case *k8smeta.Time:
		if f.set() {
			*p = k8smeta.Unix(f.rng.Int64N(1<<33)-1<<31, 0)
		}
		return
	case *k8smeta.MicroTime:
		if f.set() {
			*p = k8smeta.NewMicroTime(time.UnixMicro(f.rng.Int64N(1 << 50)))
		}
		return
	case *resource.Quantity:
		if f.set() {
			*p = resource.MustParse(pick(f.rng, quantities))
		}
		return
	case *intstr.IntOrString:
		if f.set() {
			*p = intstr.FromString(pick(f.rng, words))
		} else {
			*p = intstr.FromInt32(f.rng.Int32())
		}
		return
	case *k8smeta.FieldsV1:
		p.SetRawBytes([]byte(pick(f.rng, rawValues)))
		return
	case *runtime.RawExtension:
		if f.set() {
			p.Raw = []byte(pick(f.rng, rawValues))
		}
		return
	}
	f.fillKind(v, depth)
}

func (f *filler) fillKind(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(v.Field(i), depth+1)
		}
		return
	}
	if !f.set() || depth > 14 {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(pick(f.rng, words))
	case reflect.Bool:
		v.SetBool(f.rng.IntN(2) == 0)
	case reflect.Int32:
		v.SetInt(int64(int32(f.rng.Uint32())) >> f.rng.IntN(32))
	case reflect.Int64:
		v.SetInt(int64(f.rng.Uint64()) >> f.rng.IntN(64))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		switch p := v.Interface().(type) {
		case *k8smeta.Time: // a pointer to the zero time is not in any real object
			*p = k8smeta.Unix(f.rng.Int64N(1<<33), 0)
		case *k8smeta.MicroTime:
			*p = k8smeta.NewMicroTime(time.UnixMicro(f.rng.Int64N(1 << 50)))
		default:
			f.fill(v.Elem(), depth)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			b := make([]byte, 1+f.rng.IntN(20))
			for i := range b {
				b[i] = byte(f.rng.Uint32())
			}
			v.SetBytes(b)
			return
		}
		n := 1 + f.rng.IntN(3)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			f.fill(v.Index(i), depth)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 1 + f.rng.IntN(4) {
			elem := reflect.New(v.Type().Elem()).Elem()
			f.fill(elem, depth)
			v.SetMapIndex(reflect.ValueOf(pick(f.rng, words)).Convert(v.Type().Key()), elem)
		}
	default:
		panic("filler: " + v.Type().String())
	}
}

func (f *filler) set() bool { return f.rng.Float64() < f.density }

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }

// random returns a random object of p's Kubernetes type, with its TypeMeta set.
func (p pair) random(rng *rand.Rand) protobufObject {
	o := p.k8s()
	f := filler{rng: rng, density: []float64{0.05, 0.2, 0.4, 0.7}[rng.IntN(4)]}
	v := reflect.ValueOf(o).Elem()
	f.fill(v, 0)
	p.setTypeMeta(o)
	if items := v.FieldByName("Items"); items.IsValid() && items.IsNil() {
		items.Set(reflect.MakeSlice(items.Type(), 0, 0)) // as servers answer, and Monoplane always
	}
	return o
}

// setTypeMeta gives o the TypeMeta of its kind, and its items none, nor the options in it, whose kind is known. The
// claims of a StatefulSet have theirs, as a server of Kubernetes answers.
func (p pair) setTypeMeta(o protobufObject) {
	apiVersion, kind := p.ours().TypeMeta()
	v := reflect.ValueOf(o).Elem()
	v.FieldByName("TypeMeta").Set(reflect.ValueOf(k8smeta.TypeMeta{APIVersion: apiVersion, Kind: kind}))
	if items := v.FieldByName("Items"); items.IsValid() {
		for i := range items.Len() {
			items.Index(i).FieldByName("TypeMeta").SetZero()
		}
	}
	sets := []k8sapps.StatefulSet{}
	switch o := o.(type) {
	case *k8sapps.StatefulSet:
		sets = append(sets, *o)
	case *k8sapps.StatefulSetList:
		sets = o.Items
	}
	for _, set := range sets {
		for i := range set.Spec.VolumeClaimTemplates {
			set.Spec.VolumeClaimTemplates[i].TypeMeta = k8smeta.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}
		}
	}
	if options := v.FieldByName("DeleteOptions"); options.IsValid() && !options.IsNil() {
		options.Elem().FieldByName("TypeMeta").SetZero()
	}
}
