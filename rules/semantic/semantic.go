// Package semantic compares objects by what they mean to Kubernetes, and not by how they are written: programs that
// read and write an object leave out what is empty, or write it out, as their language does.
package semantic

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"monoplane.dev/codec/value"

	metav1 "monoplane.dev/api/meta/v1"
	optionsv1 "monoplane.dev/api/options/v1"
)

// Equal says whether two messages of one type mean the same: quantities are compared as numbers, and a
// message that Kubernetes embeds as a value, such as a container's resources, may be absent on one side
// and empty on the other. Two nil messages are equal.
func Equal(a, b proto.Message) bool {
	return proto.Equal(a, b) || len(Differences(a.ProtoReflect(), b.ProtoReflect(), "", 1)) == 0
}

// Differences returns the paths of up to limit fields in which a and b differ, below path.
func Differences(a, b protoreflect.Message, path string, limit int) []string {
	d := differ{limit: limit}
	d.messages(a, b, path)
	return d.paths
}

type differ struct {
	paths []string
	limit int
}

func (d *differ) full() bool { return len(d.paths) >= d.limit }

func (d *differ) note(path string) {
	if !d.full() {
		d.paths = append(d.paths, path)
	}
}

func (d *differ) messages(a, b protoreflect.Message, path string) {
	if x, ok := a.Interface().(*metav1.Quantity); ok {
		y, _ := b.Interface().(*metav1.Quantity)
		if !sameQuantity(x, y) {
			d.note(path)
		}
		return
	}
	fields := a.Descriptor().Fields()
	for i := 0; i < fields.Len() && !d.full(); i++ {
		fd := fields.Get(i)
		hasA, hasB := a.Has(fd), b.Has(fd)
		if !hasA && !hasB {
			continue
		}
		at := path
		if !Inline(fd) {
			at = child(path, string(fd.Name()))
		}
		switch {
		case fd.IsMap():
			d.maps(fd, a.Get(fd).Map(), b.Get(fd).Map(), at)
		case fd.IsList():
			d.lists(fd, a.Get(fd).List(), b.Get(fd).List(), at)
		case hasA != hasB && !ByValue(fd) && !isTime(fd):
			d.note(at)
		case fd.Message() != nil:
			d.messages(a.Get(fd).Message(), b.Get(fd).Message(), at)
		case !a.Get(fd).Equal(b.Get(fd)):
			d.note(at)
		}
	}
}

func (d *differ) lists(fd protoreflect.FieldDescriptor, a, b protoreflect.List, path string) {
	if a.Len() != b.Len() {
		d.note(path)
		return
	}
	for i := 0; i < a.Len() && !d.full(); i++ {
		at := fmt.Sprintf("%s[%d]", path, i)
		if fd.Message() != nil {
			d.messages(a.Get(i).Message(), b.Get(i).Message(), at)
		} else if !a.Get(i).Equal(b.Get(i)) {
			d.note(at)
		}
	}
}

func (d *differ) maps(fd protoreflect.FieldDescriptor, a, b protoreflect.Map, path string) {
	if a.Len() != b.Len() {
		d.note(path)
		return
	}
	a.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		switch {
		case !b.Has(k):
			d.note(path)
		case fd.MapValue().Message() != nil:
			before := len(d.paths)
			d.messages(v.Message(), b.Get(k).Message(), path)
			return len(d.paths) == before
		case !v.Equal(b.Get(k)):
			d.note(path)
		default:
			return true
		}
		return false
	})
}

func sameQuantity(a, b *metav1.Quantity) bool {
	if a.GetString_() == b.GetString_() {
		return true
	}
	x, errX := value.Quantity(a)
	y, errY := value.Quantity(b)
	return errX == nil && errY == nil && x.Cmp(y) == 0
}

func child(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// ByValue says whether Kubernetes embeds a message as a value, so that empty and absent are the same.
func ByValue(fd protoreflect.FieldDescriptor) bool {
	if fd.Message() == nil {
		return false
	}
	always, _ := proto.GetExtension(fd.Options(), optionsv1.E_Always).(bool)
	return always || Inline(fd)
}

// isTime says whether a field is a time. One of zero is none: protobuf clients of Kubernetes send it for a time that
// is not set, and JSON leaves it out.
func isTime(fd protoreflect.FieldDescriptor) bool {
	if fd.Message() == nil {
		return false
	}
	switch fd.Message().FullName() {
	case (*metav1.Time)(nil).ProtoReflect().Descriptor().FullName(),
		(*metav1.MicroTime)(nil).ProtoReflect().Descriptor().FullName():
		return true
	default:
		return false
	}
}

// Inline says whether the fields of a message are written as those of the one that it is in.
func Inline(fd protoreflect.FieldDescriptor) bool {
	if fd.Message() == nil {
		return false
	}
	in, _ := proto.GetExtension(fd.Options(), optionsv1.E_Inline).(bool)
	return in
}
