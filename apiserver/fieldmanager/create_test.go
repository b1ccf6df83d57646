package fieldmanager

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"monoplane.dev/object"

	appsv1 "monoplane.dev/api/apps/v1"
	corev1 "monoplane.dev/api/core/v1"
	networkingv1 "monoplane.dev/api/networking/v1"
)

// fill sets some of the fields of m, to few values, so that keys and values meet twice now and then.
func fill(r *rand.Rand, m protoreflect.Message, depth int) {
	for i := range m.Descriptor().Fields().Len() {
		fd := m.Descriptor().Fields().Get(i)
		if r.IntN(3) > 0 || fd.Message() != nil && depth == 0 {
			continue
		}
		switch {
		case fd.IsMap():
			for range r.IntN(3) {
				v := m.Mutable(fd).Map().NewValue()
				if fd.MapValue().Message() != nil {
					fill(r, v.Message(), depth-1)
				} else {
					v = scalarFor(r, fd.MapValue())
				}
				m.Mutable(fd).Map().Set(scalarFor(r, fd.MapKey()).MapKey(), v)
			}
		case fd.IsList():
			for range r.IntN(4) {
				v := m.Mutable(fd).List().NewElement()
				if fd.Message() != nil {
					fill(r, v.Message(), depth-1)
				} else {
					v = scalarFor(r, fd)
				}
				m.Mutable(fd).List().Append(v)
			}
		case fd.Message() != nil:
			fill(r, m.Mutable(fd).Message(), depth-1)
		default:
			m.Set(fd, scalarFor(r, fd))
		}
	}
}

func scalarFor(r *rand.Rand, fd protoreflect.FieldDescriptor) protoreflect.Value {
	n := r.IntN(3)
	switch fd.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString([]string{"", "a", `b "quoted" \ and`}[n])
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(fmt.Sprint(n)))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(n > 0)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(n))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(n))
	default:
		return fd.Default()
	}
}

// What is written at once for a new object is what comparing it with nothing finds.
//
// spec: OBJ-17
func TestNewObjects(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, kind := range []*object.Kind{
		corev1.PodKind, corev1.SecretKind, corev1.ConfigMapKind, corev1.ServiceKind, corev1.NodeKind, appsv1.DeploymentKind,
		networkingv1.IngressKind,
	} {
		k := New(kind)
		for range 300 {
			o := kind.New()
			fill(r, o.ProtoReflect(), 7)
			blank, next := reflect.ValueOf(kind.New()).Elem(), reflect.ValueOf(o).Elem()
			want := string(k.versions[0].owned().compare(blank, next, "status").changed.appendJSON(nil))
			if got := string(k.versions[0].owned().appendNew(nil, next, "status")); got != want {
				t.Fatalf("%s written:\n%s\nwant\n%s", kind.Kind, got, want)
			}
		}
	}
}
