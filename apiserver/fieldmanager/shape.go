package fieldmanager

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	optionsv1 "monoplane.dev/api/options/v1"
)

// form says how a value is owned.
type form uint8

const (
	// leaf: as a whole.
	leaf form = iota
	// fields: each field of the message on its own.
	fields
	// entries: each entry of the map on its own.
	entries
	// keyed: each element of the list, which its keys identify, and in it each field, on its own.
	keyed
	// values: each value of the list on its own.
	values
)

// field is a field of a message as it is in JSON.
type field struct {
	// name is the name in JSON, element the step of a path, and quoted that step as fieldsV1 has it, with its colon.
	name, element, quoted string
	// place is where the struct of the message has it.
	place place
	fd    protoreflect.FieldDescriptor
	// always says that the field is written even when absent, null that it is as null.
	always, null bool
	// time says that the field is one, which is absent when it is zero.
	time bool
	form form
	// sub is what the message, an entry of the map or an element of the list is made of; nil for leaves. An entry that
	// is a leaf has none either.
	sub *shape
	// granular says that the fields of an element have owners of their own; only with keyed.
	granular bool
	// keys identify an element; only with keyed.
	keys []*field
	// defaulted says that the field counts as keyDefault, when absent, in a key.
	defaulted  bool
	keyDefault string
}

// shape is a message as it is in JSON: its fields in the order of their names.
type shape struct {
	fields []*field
	// blank is the struct of the message with nothing in it.
	blank reflect.Value
}

// unowned are the fields of an object's metadata that nobody owns: the server's, and those that name the object.
var unowned = []string{
	"name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "managedFields", "resourceVersion",
}

// known are the shapes that have been made; kinds have most of their messages in common.
var known = struct {
	sync.Mutex
	shapes shapes
}{shapes: make(shapes)}

// shapeOf returns the shape of the message.
func shapeOf(m protoreflect.MessageDescriptor) *shape {
	known.Lock()
	defer known.Unlock()
	return known.shapes.of(m)
}

// shapes makes shapes, each once.
type shapes map[protoreflect.FullName]*shape

func (s shapes) of(m protoreflect.MessageDescriptor) *shape {
	if have, ok := s[m.FullName()]; ok {
		return have
	}
	out := &shape{blank: reflect.Zero(structOf(m))}
	s[m.FullName()] = out
	s.add(out, m, nil)
	slices.SortFunc(out.fields, func(a, b *field) int { return strings.Compare(a.name, b.name) })
	return out
}

// add adds the fields of m, which is reached by via.
func (s shapes) add(out *shape, m protoreflect.MessageDescriptor, via []int) {
	t := structOf(m)
	for i := range m.Fields().Len() {
		fd := m.Fields().Get(i)
		at := placeOf(t, fd, via)
		if extension(fd, optionsv1.E_Inline) {
			s.add(out, fd.Message(), append(slices.Clip(via), at.index))
			continue
		}
		f := &field{name: fd.JSONName(), element: "f:" + fd.JSONName(), place: at, fd: fd}
		f.quoted = `"` + f.element + `":`
		f.always = extension(fd, optionsv1.E_Always)
		f.defaulted = proto.HasExtension(fd.Options(), optionsv1.E_KeyDefault)
		f.keyDefault, _ = proto.GetExtension(fd.Options(), optionsv1.E_KeyDefault).(string)
		if fd.Message() != nil && !fd.IsMap() && !fd.IsList() {
			scalar := scalarOf(fd.Message())
			f.time = scalar == optionsv1.Scalar_TIME || scalar == optionsv1.Scalar_MICRO_TIME
		}
		f.null = f.always && (fd.IsList() || fd.IsMap() || fd.HasOptionalKeyword() || f.time)
		s.form(f)
		out.fields = append(out.fields, f)
	}
}

func (s shapes) form(f *field) {
	if extension(f.fd, optionsv1.E_AtomicValue) {
		return
	}
	keys, _ := proto.GetExtension(f.fd.Options(), optionsv1.E_ListMapKey).([]string)
	switch {
	case f.fd.IsMap():
		f.form = entries
		if m := f.fd.MapValue().Message(); m != nil && granular(m) {
			f.sub = s.of(m)
		}
	case len(keys) > 0:
		// Its elements are told apart, though each of them may be a leaf.
		f.form, f.sub = keyed, s.of(f.fd.Message())
		f.granular = granular(f.fd.Message())
		for _, name := range slices.Sorted(slices.Values(keys)) {
			i := slices.IndexFunc(f.sub.fields, func(k *field) bool { return k.name == name })
			f.keys = append(f.keys, f.sub.fields[i])
		}
	case extension(f.fd, optionsv1.E_ListSet):
		f.form = values
	case f.fd.IsList():
	case f.fd.Message() != nil && (granular(f.fd.Message()) || extension(f.fd, optionsv1.E_GranularValue)):
		f.form, f.sub = fields, s.of(f.fd.Message())
	}
}

// granular says whether the fields of a message have owners of their own.
func granular(m protoreflect.MessageDescriptor) bool {
	atomic, _ := proto.GetExtension(m.Options(), optionsv1.E_Atomic).(bool)
	return !atomic && scalarOf(m) == optionsv1.Scalar_SCALAR_UNSPECIFIED
}

func scalarOf(m protoreflect.MessageDescriptor) optionsv1.Scalar {
	options, _ := m.Options().(*descriptorpb.MessageOptions)
	return proto.GetExtension(options, optionsv1.E_Scalar).(optionsv1.Scalar)
}

func extension(fd protoreflect.FieldDescriptor, x protoreflect.ExtensionType) bool {
	v, _ := proto.GetExtension(fd.Options(), x).(bool)
	return v
}

// owned is the shape of an object without the fields that nobody owns.
func owned(all *shape) *shape {
	out := &shape{blank: all.blank}
	for _, f := range all.fields {
		if f.name == "metadata" && f.sub != nil {
			m := &shape{blank: f.sub.blank}
			for _, g := range f.sub.fields {
				if !slices.Contains(unowned, g.name) {
					m.fields = append(m.fields, g)
				}
			}
			g := *f
			g.sub = m
			f = &g
		}
		out.fields = append(out.fields, f)
	}
	return out
}
