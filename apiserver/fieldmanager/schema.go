package fieldmanager

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	optionsv1 "monoplane.dev/api/options/v1"
)

// anything is the type of values of any form, which have one owner.
const anything = "anything"

// schemaOf returns the type of objects of the kind as structured-merge-diff describes it, from the same options as
// shapes.
func schemaOf(m protoreflect.MessageDescriptor) typed.ParseableType {
	b := builder{known: make(map[string]bool)}
	untyped, atomic := schema.Untyped, schema.Atomic
	ref := reference(anything)
	b.out.Types = append(b.out.Types, schema.TypeDef{Name: anything, Atom: schema.Atom{
		Scalar: &untyped,
		List:   &schema.List{ElementType: ref, ElementRelationship: atomic},
		Map:    &schema.Map{ElementType: ref, ElementRelationship: atomic},
	}})
	return typed.ParseableType{TypeRef: b.message(m), Schema: &b.out}
}

// builder makes the types of messages, each once.
type builder struct {
	known map[string]bool
	out   schema.Schema
}

func reference(name string) schema.TypeRef { return schema.TypeRef{NamedType: &name} }

func inlined(a schema.Atom) schema.TypeRef { return schema.TypeRef{Inlined: a} }

func scalar(s schema.Scalar) schema.TypeRef { return inlined(schema.Atom{Scalar: &s}) }

// message returns the type of a message.
func (b *builder) message(m protoreflect.MessageDescriptor) schema.TypeRef {
	switch scalarOf(m) {
	case optionsv1.Scalar_SCALAR_UNSPECIFIED:
	case optionsv1.Scalar_FIELDS_V1, optionsv1.Scalar_RAW_EXTENSION:
		return reference(anything)
	case optionsv1.Scalar_STRINGS:
		return inlined(schema.Atom{List: &schema.List{
			ElementType: scalar(schema.String), ElementRelationship: schema.Atomic,
		}})
	default:
		return scalar(schema.Untyped)
	}
	name := string(m.FullName())
	if b.known[name] {
		return reference(name)
	}
	b.known[name] = true
	out := &schema.Map{ElementRelationship: schema.Separable}
	if !granular(m) {
		out.ElementRelationship = schema.Atomic
	}
	if kind, _ := proto.GetExtension(m.Options(), optionsv1.E_Kind).(*optionsv1.Kind); kind != nil {
		for _, name := range []string{"apiVersion", "kind"} {
			out.Fields = append(out.Fields, schema.StructField{Name: name, Type: scalar(schema.String)})
		}
	}
	for _, f := range shapeOf(m).fields {
		out.Fields = append(out.Fields, schema.StructField{Name: f.name, Type: b.field(f), Default: f.keyed()})
	}
	b.out.Types = append(b.out.Types, schema.TypeDef{Name: name, Atom: schema.Atom{Map: out}})
	return reference(name)
}

// keyed returns what the field counts as in a key when it is absent; nil for nothing.
func (f *field) keyed() any {
	switch {
	case f.defaulted:
		return f.keyDefault
	case !f.always || f.fd.IsList() || f.fd.IsMap() || f.fd.Message() != nil:
		return nil
	case f.fd.Kind() == protoreflect.StringKind:
		return ""
	default:
		return 0
	}
}

func (b *builder) field(f *field) schema.TypeRef {
	switch {
	case f.fd.IsMap():
		m := &schema.Map{ElementType: b.value(f.fd.MapValue()), ElementRelationship: schema.Separable}
		if f.form == leaf {
			m.ElementRelationship = schema.Atomic
		}
		return inlined(schema.Atom{Map: m})
	case f.fd.IsList():
		l := &schema.List{ElementType: b.value(f.fd), ElementRelationship: schema.Associative}
		if f.form == leaf {
			l.ElementRelationship = schema.Atomic
		}
		for _, k := range f.keys {
			l.Keys = append(l.Keys, k.name)
		}
		return inlined(schema.Atom{List: l})
	}
	ref := b.value(f.fd)
	if f.form == leaf && ref.NamedType != nil {
		atomic := schema.Atomic
		ref.ElementRelationship = &atomic
	}
	if f.form == fields && !granular(f.fd.Message()) {
		separable := schema.Separable
		ref.ElementRelationship = &separable
	}
	return ref
}

// value returns the type of one value of a field.
func (b *builder) value(fd protoreflect.FieldDescriptor) schema.TypeRef {
	switch fd.Kind() {
	case protoreflect.MessageKind:
		return b.message(fd.Message())
	case protoreflect.StringKind, protoreflect.BytesKind:
		return scalar(schema.String)
	case protoreflect.BoolKind:
		return scalar(schema.Boolean)
	default:
		return scalar(schema.Numeric)
	}
}
