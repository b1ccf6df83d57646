package openapi

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	metav1 "monoplane.dev/api/meta/v1"
	optionsv1 "monoplane.dev/api/options/v1"
)

// schemas collects the schemas that a document refers to.
type schemas struct {
	all  map[string]any
	docs docs
}

// named returns a reference to a message by its full name.
func (s *schemas) named(name protoreflect.FullName) map[string]any {
	t, err := protoregistry.GlobalTypes.FindMessageByName(name)
	if err != nil {
		return map[string]any{"type": "object"}
	}
	return s.reference(t.Descriptor())
}

// reference returns a reference to the schema of a message, and adds that schema if it is new.
func (s *schemas) reference(d protoreflect.MessageDescriptor) map[string]any {
	name := string(d.FullName())
	if _, ok := s.all[name]; !ok {
		s.all[name] = nil // messages may contain themselves
		s.all[name] = s.message(d)
	}
	return map[string]any{"$ref": "#/components/schemas/" + name}
}

func (s *schemas) message(d protoreflect.MessageDescriptor) map[string]any {
	if form := scalarForm(d); form != nil {
		s.docs.describe(form, d.FullName())
		return form
	}
	properties := make(map[string]any)
	s.addFields(properties, d)
	schema := map[string]any{"type": "object", "properties": properties}
	s.docs.describe(schema, d.FullName())
	if atomic, _ := proto.GetExtension(d.Options(), optionsv1.E_Atomic).(bool); atomic {
		schema["x-kubernetes-map-type"] = "atomic"
	}
	if k, ok := proto.GetExtension(d.Options(), optionsv1.E_Kind).(*optionsv1.Kind); ok && k != nil {
		s.addFields(properties, new(metav1.TypeMeta).ProtoReflect().Descriptor())
		schema["x-kubernetes-group-version-kind"] = []any{gvk(k.GetGroup(), k.GetVersion(), k.GetKind())}
	}
	return schema
}

// addFields adds the fields of a message, those of inlined messages in place.
func (s *schemas) addFields(properties map[string]any, d protoreflect.MessageDescriptor) {
	fields := d.Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if proto.GetExtension(f.Options(), optionsv1.E_Inline).(bool) {
			s.addFields(properties, f.Message())
			continue
		}
		properties[string(f.Name())] = s.field(f)
	}
}

func (s *schemas) field(f protoreflect.FieldDescriptor) map[string]any {
	var schema map[string]any
	switch {
	case f.IsMap():
		schema = map[string]any{"type": "object", "additionalProperties": s.value(f.MapValue())}
	case f.IsList():
		schema = map[string]any{"type": "array", "items": s.value(f)}
	default:
		schema = s.value(f)
	}
	if v, _ := proto.GetExtension(f.Options(), optionsv1.E_PatchStrategy).(string); v != "" {
		schema["x-kubernetes-patch-strategy"] = v
	}
	if v, _ := proto.GetExtension(f.Options(), optionsv1.E_PatchMergeKey).(string); v != "" {
		schema["x-kubernetes-patch-merge-key"] = v
	}
	if keys, _ := proto.GetExtension(f.Options(), optionsv1.E_ListMapKey).([]string); len(keys) > 0 {
		schema["x-kubernetes-list-type"], schema["x-kubernetes-list-map-keys"] = "map", keys
	}
	if set, _ := proto.GetExtension(f.Options(), optionsv1.E_ListSet).(bool); set {
		schema["x-kubernetes-list-type"] = "set"
	}
	if atomic, _ := proto.GetExtension(f.Options(), optionsv1.E_AtomicValue).(bool); atomic {
		schema["x-kubernetes-map-type"] = "atomic"
	}
	s.docs.describeField(schema, f)
	return schema
}

// value is the schema of one value of a field.
func (s *schemas) value(f protoreflect.FieldDescriptor) map[string]any {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		// Those of several types are referred to, so that kubectl explain calls them by their names.
		if form := scalarForm(f.Message()); form["type"] != nil {
			return form
		}
		// As kube-apiserver has it: a reference has no siblings, and so can carry extensions.
		return map[string]any{"allOf": []any{s.reference(f.Message())}}
	case protoreflect.BoolKind:
		return map[string]any{"type": "boolean"}
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Uint32Kind:
		return map[string]any{"type": "integer", "format": "int32"}
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Uint64Kind:
		return map[string]any{"type": "integer", "format": "int64"}
	case protoreflect.DoubleKind, protoreflect.FloatKind:
		return map[string]any{"type": "number", "format": "double"}
	case protoreflect.BytesKind:
		return map[string]any{"type": "string", "format": "byte"}
	default:
		return map[string]any{"type": "string"}
	}
}

// scalarForm is the schema of messages whose JSON is not an object of their fields; nil for the others.
func scalarForm(d protoreflect.MessageDescriptor) map[string]any {
	form, _ := proto.GetExtension(d.Options(), optionsv1.E_Scalar).(optionsv1.Scalar)
	switch form {
	case optionsv1.Scalar_TIME, optionsv1.Scalar_MICRO_TIME:
		return map[string]any{"type": "string", "format": "date-time"}
	case optionsv1.Scalar_DURATION:
		return map[string]any{"type": "string"}
	case optionsv1.Scalar_QUANTITY:
		return map[string]any{"oneOf": []any{map[string]any{"type": "string"}, map[string]any{"type": "number"}}}
	case optionsv1.Scalar_INT_OR_STRING:
		return map[string]any{"format": "int-or-string", "oneOf": []any{
			map[string]any{"type": "integer"}, map[string]any{"type": "string"},
		}}
	case optionsv1.Scalar_FIELDS_V1, optionsv1.Scalar_RAW_EXTENSION:
		return map[string]any{"type": "object"}
	case optionsv1.Scalar_STRINGS:
		return map[string]any{"type": "array", "items": map[string]any{"type": "string"}}
	default:
		return nil
	}
}
