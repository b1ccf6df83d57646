package patch

import (
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	optionsv1 "monoplane.dev/api/options/v1"
)

// Schema says how the fields of one message merge. A nil Schema knows no fields: maps below it merge, lists
// are replaced.
type Schema struct {
	message protoreflect.MessageDescriptor
	once    sync.Once
	fields  map[string]*field
	// elements is the schema of every field alike, when the schema is that of a map.
	elements *Schema
	isMap    bool
}

// field says how one field merges.
type field struct {
	// sub is the schema of the field's value, or of its elements when it is a list.
	sub *Schema
	// mergeLists is true when lists merge; otherwise the patch's list replaces the object's.
	mergeLists bool
	// replaceMaps is true when an object replaces the one before instead of merging.
	replaceMaps bool
	// mergeKey identifies the elements of a merged list of objects; empty for lists of scalars.
	mergeKey string
}

// NewSchema returns the schema of a message. It is safe for concurrent use.
func NewSchema(m protoreflect.MessageDescriptor) *Schema { return &Schema{message: m} }

// lookup returns how a field merges; an unknown one merges by default.
func (s *Schema) lookup(name string) field {
	if s == nil {
		return field{}
	}
	if s.isMap {
		return field{sub: s.elements}
	}
	s.once.Do(func() {
		s.fields = make(map[string]*field)
		s.add(s.message)
	})
	if f, ok := s.fields[name]; ok {
		return *f
	}
	return field{}
}

// add reads the fields of m; those of inlined messages are fields of the message around them.
func (s *Schema) add(m protoreflect.MessageDescriptor) {
	for i := range m.Fields().Len() {
		fd := m.Fields().Get(i)
		options, _ := fd.Options().(*descriptorpb.FieldOptions)
		if proto.GetExtension(options, optionsv1.E_Inline).(bool) {
			s.add(fd.Message())
			continue
		}
		f := &field{sub: subSchema(fd), mergeKey: proto.GetExtension(options, optionsv1.E_PatchMergeKey).(string)}
		for strategy := range strings.SplitSeq(proto.GetExtension(options, optionsv1.E_PatchStrategy).(string), ",") {
			f.mergeLists = f.mergeLists || strategy == "merge"
			f.replaceMaps = f.replaceMaps || strategy == "replace"
		}
		s.fields[string(fd.Name())] = f
	}
}

func subSchema(fd protoreflect.FieldDescriptor) *Schema {
	if fd.IsMap() {
		return &Schema{isMap: true, elements: subSchema(fd.MapValue())}
	}
	if fd.Message() == nil {
		return nil
	}
	options, _ := fd.Message().Options().(*descriptorpb.MessageOptions)
	if proto.GetExtension(options, optionsv1.E_Scalar).(optionsv1.Scalar) != optionsv1.Scalar_SCALAR_UNSPECIFIED {
		return nil
	}
	return NewSchema(fd.Message())
}
