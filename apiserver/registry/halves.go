package registry

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"monoplane.dev/object"
)

// halves are the two parts of a kind that users ask of in its spec and that a controller answers in its status: a
// write of the object itself leaves the status as it is, and a write of subresource status the spec.
type halves struct{ metadata, spec, status protoreflect.FieldDescriptor }

// halvesOf returns the parts of objects of T's kind; ok is false when they have none.
func halvesOf[T object.Object]() (h halves, ok bool) {
	var none T
	fields := none.ProtoReflect().Descriptor().Fields()
	h = halves{fields.ByName("metadata"), fields.ByName("spec"), fields.ByName("status")}
	return h, h.spec != nil && h.status != nil && h.status.Message() != nil
}

// main returns live with the metadata and the spec of asked, filled in by Default.
func (h halves) main(asked, live protoreflect.Message, fill func(object.Object)) object.Object {
	next := live.New()
	copyField(next, asked, h.metadata)
	copyField(next, asked, h.spec)
	fill(next.Interface().(object.Object))
	share(next, live, h.status)
	return next.Interface().(object.Object)
}

// statusOf returns live with the status of asked, filled in by Default.
func (h halves) statusOf(asked, live protoreflect.Message, fill func(object.Object)) object.Object {
	next := live.New()
	copyField(next, asked, h.status)
	fill(next.Interface().(object.Object))
	next.Clear(h.metadata)
	share(next, live, h.spec)
	return next.Interface().(object.Object)
}

func copyField(to, from protoreflect.Message, field protoreflect.FieldDescriptor) {
	if from.Has(field) {
		part := object.Clone[proto.Message](from.Get(field).Message().Interface())
		to.Set(field, protoreflect.ValueOfMessage(part.ProtoReflect()))
	}
}

// share gives to the part that from has: what Apply did not change it may share with the live object.
func share(to, from protoreflect.Message, field protoreflect.FieldDescriptor) {
	if from.Has(field) {
		to.Set(field, from.Get(field))
		return
	}
	to.Clear(field)
}

// split fills in what t leaves out of a kind with a spec and a status.
func (t *Typed[T]) split() {
	h, ok := halvesOf[T]()
	if !ok {
		return
	}
	fill := func(o object.Object) { t.Default(o.(T)) }
	if t.DefaultNew == nil {
		t.DefaultNew = func(o T) {
			o.ProtoReflect().Clear(h.status)
			t.Default(o)
		}
	}
	if t.Main.Apply == nil {
		t.Main.Apply = func(asked, live T) T {
			return h.main(asked.ProtoReflect(), live.ProtoReflect(), fill).(T)
		}
	}
	if status, ok := t.Subresources["status"]; ok && status.Apply == nil {
		status.Apply = func(asked, live T) T {
			return h.statusOf(asked.ProtoReflect(), live.ProtoReflect(), fill).(T)
		}
		t.Subresources["status"] = status
	}
}
