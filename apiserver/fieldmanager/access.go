package fieldmanager

import (
	"bytes"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"monoplane.dev/codec/json"
)

// The fields of messages are read from their structs: every write of any object looks at all of them, and protobuf's
// own reflection takes ten times as long.

// presence is what JSON has of a field.
type presence uint8

const (
	absent presence = iota
	null
	present
)

// place is where a struct has a field of its message.
type place struct {
	// via are the fields that hold the messages whose fields are written in the place of theirs, from the outside
	// inwards.
	via   []int
	index int
	// zero is what the field holds when nothing is set.
	zero reflect.Value
}

// structOf returns the type of the structs of a message.
func structOf(m protoreflect.MessageDescriptor) reflect.Type {
	t, err := protoregistry.GlobalTypes.FindMessageByName(m.FullName())
	if err != nil {
		panic(fmt.Sprintf("a kind is made of a message that is not in this program: %v", err))
	}
	return reflect.TypeOf(t.Zero().Interface()).Elem()
}

// placeOf finds the field in t, which is reached by via.
func placeOf(t reflect.Type, fd protoreflect.FieldDescriptor, via []int) place {
	number := "," + strconv.Itoa(int(fd.Number())) + ","
	for i := range t.NumField() {
		_, tag, ok := strings.Cut(t.Field(i).Tag.Get("protobuf"), ",")
		if ok && strings.HasPrefix(","+tag, number) {
			return place{via: via, index: i, zero: reflect.Zero(t.Field(i).Type)}
		}
	}
	panic(fmt.Sprintf("%v has no field of its own for %s", t, fd.FullName()))
}

// get returns the field's value in m, a struct, or no value for none. Of a message it is the pointer, which may be
// nil when the field is present.
func (f *field) get(m reflect.Value) (reflect.Value, presence) {
	if !m.IsValid() {
		return reflect.Value{}, absent
	}
	for _, i := range f.place.via {
		p := m.Field(i)
		if p.IsNil() {
			return f.unset()
		}
		m = p.Elem()
	}
	v := m.Field(f.place.index)
	if !filled(v) || f.time && zeroTime(v) {
		return f.unset()
	}
	return v, present
}

// unset is what get returns for a message in which the field is not set.
func (f *field) unset() (reflect.Value, presence) {
	switch {
	case f.null:
		return reflect.Value{}, null
	case f.always:
		return f.place.zero, present
	default:
		return reflect.Value{}, absent
	}
}

func filled(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer:
		return !v.IsNil()
	case reflect.String, reflect.Slice, reflect.Map:
		return v.Len() > 0
	default:
		return !v.IsZero()
	}
}

func zeroTime(v reflect.Value) bool {
	t, ok := v.Interface().(interface {
		GetSeconds() int64
		GetNanos() int32
	})
	return ok && json.ZeroTime(t.GetSeconds(), t.GetNanos())
}

// message returns the struct of a field that is a message: none when JSON has none.
func (s *shape) message(v reflect.Value, p presence) reflect.Value {
	switch {
	case p != present:
		return reflect.Value{}
	case v.IsNil():
		return s.blank
	default:
		return v.Elem()
	}
}

// shared says whether the two hold the same thing in memory, so that nothing in it can differ.
func shared(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Pointer, reflect.Map:
		return a.UnsafePointer() == b.UnsafePointer()
	case reflect.Slice:
		return a.Len() == b.Len() && a.UnsafePointer() == b.UnsafePointer()
	default:
		return false
	}
}

// equal compares two values that have one owner. Messages that differ may be the same in JSON, where some are written
// though they are absent.
func equal(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.String:
		return a.String() == b.String()
	case reflect.Bool:
		return a.Bool() == b.Bool()
	case reflect.Int32, reflect.Int64:
		return a.Int() == b.Int()
	case reflect.Pointer:
		if shared(a, b) {
			return true
		}
		x, ok := a.Interface().(proto.Message)
		if !ok {
			return !a.IsNil() && !b.IsNil() && equal(a.Elem(), b.Elem())
		}
		y, _ := b.Interface().(proto.Message)
		return proto.Equal(x, y) || sameJSON(x, y)
	case reflect.Slice:
		if a.Len() != b.Len() {
			return false
		}
		if a.Type().Elem().Kind() == reflect.Uint8 {
			return bytes.Equal(a.Bytes(), b.Bytes())
		}
		for i := range a.Len() {
			if !equal(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	case reflect.Map:
		if a.Len() != b.Len() {
			return false
		}
		for entries := a.MapRange(); entries.Next(); {
			other := b.MapIndex(entries.Key())
			if !other.IsValid() || !equal(entries.Value(), other) {
				return false
			}
		}
		return true
	default:
		return a.Equal(b)
	}
}

func sameJSON(a, b proto.Message) bool {
	x, ok := a.(json.Value)
	y, same := b.(json.Value)
	return ok && same && bytes.Equal(x.AppendJSON(nil), y.AppendJSON(nil))
}

// names returns the keys of a map.
func names(v reflect.Value) []string {
	out := make([]string, 0, v.Len())
	if texts, ok := v.Interface().(map[string]string); ok {
		for name := range texts {
			out = append(out, name)
		}
		return out
	}
	for entries := v.MapRange(); entries.Next(); {
		out = append(out, entries.Key().String())
	}
	return out
}

// appendScalar appends a value as JSON.
func appendScalar(b []byte, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.Pointer:
		return appendScalar(b, v.Elem())
	case reflect.String:
		return json.AppendString(b, v.String())
	case reflect.Bool:
		return json.AppendBool(b, v.Bool())
	case reflect.Int32, reflect.Int64:
		return json.AppendInt(b, v.Int())
	default:
		return strconv.AppendQuote(b, fmt.Sprint(v.Interface()))
	}
}
