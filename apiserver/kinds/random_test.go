package kinds

import (
	"flag"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"monoplane.dev/api/services"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/object"
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

var words = []string{"", "a", "A", "a/b", "Always", "Never", "Exists", "In", "1", "-1", "1e9999999", "Windows",
	"linux", "spec.nodeName", "metadata.labels['x']", "..", "\xff", "Localhost"}

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

// randomObject returns an object of a kind with random values in its fields.
func randomObject(r *rand.Rand, kind *object.Kind) object.Object {
	o := kind.New()
	fill(r, reflect.ValueOf(o).Elem(), 9)
	return o
}

// Whatever an object holds, looking for what is wrong with it and filling in what is left out panic for no kind.
func TestRandomObjectsNeverPanic(t *testing.T) {
	r := random(t)
	support := validation.NewSupport()
	definitions := allDefinitions(define.Config{Deps: registry.Deps{}.Complete()})
	for _, s := range services.All() {
		d := definitions[s.Kind]
		if d.Strategy == nil {
			continue
		}
		t.Run(s.Kind.Resource(), func(t *testing.T) {
			for range 60 {
				o, old := randomObject(r, s.Kind), randomObject(r, s.Kind)
				support.Unsupported(o)
				judge(d, o, old)
				if d.View != nil {
					o, old = d.View.In(o), d.View.In(old)
				}
				d.Strategy.Default(o)
				d.Strategy.Default(old)
				judge(define.Definition{Strategy: d.Strategy}, o, old)
				asked, live := randomObject(r, d.Strategy.Kind), object.Clone(old) // what is stored has no nil elements
				for _, sub := range d.Strategy.Resources {
					sub.Apply(asked, live)
				}
			}
			none := reflect.Zero(reflect.TypeOf(s.Kind.New())).Interface().(object.Object)
			judge(d, none, none)
		})
	}
}

// judge validates an object as a new one, and as one that takes the place of another in every way that there is.
func judge(d define.Definition, o, old object.Object) {
	if v := d.View; v != nil {
		if v.Validate != nil {
			v.Validate(o)
		}
		if v.ValidateUpdate != nil {
			v.ValidateUpdate(o, old)
		}
		return
	}
	d.Strategy.Validate(o)
	for _, sub := range d.Strategy.Resources {
		if sub.Validate != nil {
			sub.Validate(o, old)
		}
	}
}

// Whoever writes an object leaves its status alone, and whoever writes its status leaves the rest alone. Neither write
// changes what was there or what was asked.
func TestTheHalvesOfAnObject(t *testing.T) {
	r := random(t)
	definitions := allDefinitions(define.Config{Deps: registry.Deps{}.Complete()})
	for kind, d := range definitions {
		if d.Strategy == nil || d.View != nil || d.Strategy.Resources["status"] == nil {
			continue
		}
		t.Run(kind.Resource(), func(t *testing.T) {
			part := func(o object.Object, name protoreflect.Name) protoreflect.Value {
				m := o.ProtoReflect()
				return m.Get(m.Descriptor().Fields().ByName(name))
			}
			for range 20 {
				asked, live := object.Clone(randomObject(r, kind)), object.Clone(randomObject(r, kind))
				d.Strategy.Default(live)
				askedWas, liveWas := object.Clone(asked), object.Clone(live)
				for resource, kept := range map[string]protoreflect.Name{"": "status", "status": "spec"} {
					next := d.Strategy.Resources[resource].Apply(asked, live)
					if got, want := part(next, kept), part(live, kept); !got.Equal(want) {
						t.Errorf("resource %q: %s is %v, want %v", resource, kept, got, want)
					}
				}
				if !proto.Equal(asked, askedWas) || !proto.Equal(live, liveWas) {
					t.Error("a write changed what it was given")
				}
			}
		})
	}
}
