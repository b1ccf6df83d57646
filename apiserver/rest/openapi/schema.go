package openapi

import (
	"encoding/json"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	metav1 "monoplane.dev/api/meta/v1"
	optionsv1 "monoplane.dev/api/options/v1"
)

// schemas collects the schemas that a document refers to.
type schemas struct {
	all  map[string]any
	docs docs
}

// reference returns a reference to the schema of a message, and adds that schema if it is new.
func (s *schemas) reference(d protoreflect.MessageDescriptor) map[string]any {
	return s.refer(schemaName(d), func() map[string]any { return s.message(d) })
}

// given returns a reference to a schema of the package of metadata for which there is no message.
func (s *schemas) given(name string, build func() map[string]any) map[string]any {
	return s.refer(metaNames+name, build)
}

func (s *schemas) refer(name string, build func() map[string]any) map[string]any {
	if _, ok := s.all[name]; !ok {
		s.all[name] = nil // messages may contain themselves
		s.all[name] = build()
	}
	return map[string]any{"$ref": schemaPath + name}
}

// metaGroup is the group of options and of other messages that belong to no kind.
const metaGroup = "meta.k8s.io"

// schemaPath comes before the names of schemas in references.
const schemaPath = "#/components/schemas/"

func (s *schemas) message(d protoreflect.MessageDescriptor) map[string]any {
	if form := scalarForm(d); form != nil {
		s.docs.describe(form, d.FullName())
		return form
	}
	properties := make(map[string]any)
	required := s.addFields(properties, d)
	schema := map[string]any{"type": "object", "properties": properties}
	if len(required) > 0 {
		schema["required"] = required
	}
	s.docs.describe(schema, d.FullName())
	if atomic, _ := proto.GetExtension(d.Options(), optionsv1.E_Atomic).(bool); atomic {
		schema["x-kubernetes-map-type"] = "atomic"
	}
	if k, ok := proto.GetExtension(d.Options(), optionsv1.E_Kind).(*optionsv1.Kind); ok && k != nil {
		s.addFields(properties, new(metav1.TypeMeta).ProtoReflect().Descriptor())
		group := k.GetGroup()
		if group == metaGroup { // what is part of every group is listed with the core group
			group = ""
		}
		schema["x-kubernetes-group-version-kind"] = []any{gvk(group, k.GetVersion(), k.GetKind())}
	}
	return schema
}

// addFields adds the fields of a message, those of inlined messages in place, and returns the names of those that are
// required.
func (s *schemas) addFields(properties map[string]any, d protoreflect.MessageDescriptor) (required []any) {
	names, _ := proto.GetExtension(d.Options(), optionsv1.E_Required).([]string)
	for _, name := range names {
		required = append(required, name)
	}
	fields := d.Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if proto.GetExtension(f.Options(), optionsv1.E_Inline).(bool) {
			required = append(required, s.addFields(properties, f.Message())...)
			continue
		}
		properties[f.JSONName()] = s.field(f)
	}
	return required
}

func (s *schemas) field(f protoreflect.FieldDescriptor) map[string]any {
	var schema map[string]any
	switch {
	case f.IsMap():
		schema = map[string]any{"type": "object", "additionalProperties": s.value(f, f.MapValue())}
	case f.IsList():
		schema = map[string]any{"type": "array", "items": s.value(f, f)}
		addListType(schema, f)
	default:
		schema = s.value(f, f)
	}
	if text, _ := proto.GetExtension(f.Options(), optionsv1.E_DefaultValue).(string); text != "" {
		schema["default"] = defaultOf(f, text)
	}
	if v, _ := proto.GetExtension(f.Options(), optionsv1.E_PatchStrategy).(string); v != "" {
		schema["x-kubernetes-patch-strategy"] = v
	}
	if v, _ := proto.GetExtension(f.Options(), optionsv1.E_PatchMergeKey).(string); v != "" {
		schema["x-kubernetes-patch-merge-key"] = v
	}
	if atomic, _ := proto.GetExtension(f.Options(), optionsv1.E_AtomicValue).(bool); atomic {
		schema["x-kubernetes-map-type"] = "atomic"
	}
	if granular, _ := proto.GetExtension(f.Options(), optionsv1.E_GranularValue).(bool); granular {
		schema["x-kubernetes-map-type"] = "granular"
	}
	s.docs.describeField(schema, f)
	return schema
}

// addListType says who owns what of a list. One of which nothing else is said has one owner.
func addListType(schema map[string]any, f protoreflect.FieldDescriptor) {
	keys, _ := proto.GetExtension(f.Options(), optionsv1.E_ListMapKey).([]string)
	set, _ := proto.GetExtension(f.Options(), optionsv1.E_ListSet).(bool)
	switch {
	case len(keys) > 0:
		list := make([]any, len(keys))
		for i, key := range keys {
			list[i] = key
		}
		schema["x-kubernetes-list-type"], schema["x-kubernetes-list-map-keys"] = "map", list
	case set:
		schema["x-kubernetes-list-type"] = "set"
	default:
		schema["x-kubernetes-list-type"] = "atomic"
	}
}

// defaultOf reads the option: what is no string is written as JSON.
func defaultOf(f protoreflect.FieldDescriptor, text string) any {
	if f.Kind() == protoreflect.StringKind {
		return text
	}
	return json.RawMessage(text)
}

// value is the schema of v, which is the field f itself or one value of it.
func (s *schemas) value(f, v protoreflect.FieldDescriptor) map[string]any {
	switch v.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		switch scalar(v.Message()) {
		case optionsv1.Scalar_DURATION, optionsv1.Scalar_STRINGS:
			return scalarForm(v.Message())
		}
		// As kube-apiserver has it: a reference has no siblings, and so can carry extensions.
		return map[string]any{"allOf": []any{s.reference(v.Message())}}
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
	}
	schema := map[string]any{"type": "string"}
	if values, _ := proto.GetExtension(f.Options(), optionsv1.E_Values).(string); values != "" {
		var list []any
		for text := range strings.SplitSeq(values, ",") {
			list = append(list, text)
		}
		schema["enum"] = list
	}
	return schema
}

func scalar(d protoreflect.MessageDescriptor) optionsv1.Scalar {
	form, _ := proto.GetExtension(d.Options(), optionsv1.E_Scalar).(optionsv1.Scalar)
	return form
}

// scalarForm is the schema of messages whose JSON is not an object of their fields; nil for the others.
func scalarForm(d protoreflect.MessageDescriptor) map[string]any {
	switch scalar(d) {
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
