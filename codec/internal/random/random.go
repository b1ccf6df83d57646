// Package random makes random messages of every type of ours, for the tests of generated code.
package random

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "monoplane.dev/api/admin/v1/rpc"
	_ "monoplane.dev/api/node/v1/rpc"
	_ "monoplane.dev/api/services"
)

// Each calls f with random messages of every type of ours, some of each, and returns how many types there are.
func Each(f func(m proto.Message)) int {
	n := 0
	protoregistry.GlobalTypes.RangeMessages(func(mt protoreflect.MessageType) bool {
		name := string(mt.Descriptor().FullName())
		if !strings.HasPrefix(name, "monoplane.") || strings.HasPrefix(name, "monoplane.options.") ||
			mt.Descriptor().IsMapEntry() {
			return true
		}
		n++
		for seed := range uint64(20) {
			m := mt.New()
			fill(rand.New(rand.NewPCG(seed, 1)), m, 0)
			f(m.Interface())
		}
		return true
	})
	return n
}

func fill(rng *rand.Rand, m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if rng.IntN(2) == 0 || depth > 6 {
			continue
		}
		switch {
		case fd.IsMap():
			for range rng.IntN(3) {
				v := m.NewField(fd).Map().NewValue()
				if fd.MapValue().Message() != nil {
					fill(rng, v.Message(), depth+1)
				} else {
					v = scalar(rng, fd.MapValue())
				}
				m.Mutable(fd).Map().Set(protoreflect.ValueOfString(fmt.Sprint(rng.IntN(9))).MapKey(), v)
			}
		case fd.IsList():
			for range rng.IntN(3) {
				l := m.Mutable(fd).List()
				v := l.NewElement()
				if fd.Message() != nil {
					fill(rng, v.Message(), depth+1)
				} else {
					v = scalar(rng, fd)
				}
				l.Append(v)
			}
		case fd.Message() != nil:
			fill(rng, m.Mutable(fd).Message(), depth+1)
		default:
			m.Set(fd, scalar(rng, fd))
		}
	}
	if rng.IntN(3) == 0 {
		m.SetUnknown(protoreflect.RawFields{0xf8, 0xff, 0xff, 0xff, 0x0f, byte(rng.IntN(100))})
	}
}

func scalar(rng *rand.Rand, fd protoreflect.FieldDescriptor) protoreflect.Value {
	n := rng.IntN(3)
	switch fd.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(strings.Repeat("ü", n*40))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(make([]byte, n*100))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(n > 0)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(n) - 1)
	default:
		return protoreflect.ValueOfInt64(int64(n-1) << 40)
	}
}
