package codec_test

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	k8sbatch "k8s.io/api/batch/v1"
	k8smeta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monoplane.dev/api/services"

	batchv1 "monoplane.dev/api/batch/v1"
	metav1 "monoplane.dev/api/meta/v1"
	optionsv1 "monoplane.dev/api/options/v1"
)

// shape compares messages with Kubernetes types, each pair once.
type shape struct {
	t    *testing.T
	seen map[protoreflect.FullName]reflect.Type
}

// Every field of every Kubernetes 1.36 type that is reached from a served kind is there, with the same number,
// wire type, protobuf name, JSON name, presence and place, and nothing else is.
//
// spec: OBJ-15
func TestMessagesHaveTheFieldsOfKubernetes(t *testing.T) {
	s := shape{t: t, seen: make(map[protoreflect.FullName]reflect.Type)}
	for _, p := range pairs(t) {
		ours := p.ours()
		s.message(ours.ProtoReflect().Descriptor(), reflect.TypeOf(p.k8s()).Elem())
	}
	s.message(new(metav1.WatchEvent).ProtoReflect().Descriptor(), reflect.TypeFor[k8smeta.WatchEvent]())
	s.message(new(batchv1.JobTemplateSpec).ProtoReflect().Descriptor(), reflect.TypeFor[k8sbatch.JobTemplateSpec]())
	if len(s.seen) < 150 {
		t.Errorf("only %d messages were compared", len(s.seen))
	}
	s.complete()
}

// What streams carry is Monoplane's own: Kubernetes has channels of bytes for it, and HTTP itself.
var ownMessages = []protoreflect.FullName{
	"monoplane.core.v1.StreamInput", "monoplane.core.v1.StreamOutput", "monoplane.core.v1.TerminalSize",
	"monoplane.core.v1.ProxyInput", "monoplane.core.v1.ProxyOutput", "monoplane.core.v1.ProxyHeader",
}

// complete checks that no message of the packages with kinds escaped the comparison but those of the services and the
// envelope, and those of kinds that Kubernetes does not have.
func (s *shape) complete() {
	packages, own := map[protoreflect.FullName]bool{"monoplane.meta.v1": true}, map[string]bool{}
	for _, svc := range services.All() {
		file := svc.Kind.New().ProtoReflect().Descriptor().ParentFile()
		packages[file.Package()] = true
		own[file.Path()] = strings.HasSuffix(svc.Kind.Group, ownGroup)
	}
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		if !packages[f.Package()] || own[f.Path()] || f.Services().Len() > 0 ||
			strings.HasSuffix(f.Path(), "meta/v1/request.proto") {
			return true
		}
		for i := range f.Messages().Len() {
			name := f.Messages().Get(i).FullName()
			switch name {
			case "monoplane.meta.v1.Unknown", "monoplane.meta.v1.TypeMeta", "monoplane.meta.v1.Duration":
				continue
			}
			if s.seen[name] == nil && !slices.Contains(ownMessages, name) {
				s.t.Errorf("%s is not reached from any kind", name)
			}
		}
		return true
	})
}

func scalarOf(m protoreflect.MessageDescriptor) optionsv1.Scalar {
	return proto.GetExtension(m.Options(), optionsv1.E_Scalar).(optionsv1.Scalar)
}

func boolOption(f protoreflect.FieldDescriptor, x protoreflect.ExtensionType) bool {
	return proto.GetExtension(f.Options(), x).(bool)
}

func isKind(m protoreflect.MessageDescriptor) bool {
	return proto.HasExtension(m.Options(), optionsv1.E_Kind)
}

func (s *shape) message(m protoreflect.MessageDescriptor, typ reflect.Type) {
	if known := s.seen[m.FullName()]; known != nil {
		if known != typ {
			s.t.Errorf("%s stands for both %v and %v", m.FullName(), known, typ)
		}
		return
	}
	s.seen[m.FullName()] = typ
	if string(m.Name()) != typ.Name() {
		s.t.Errorf("%s is called %s in Kubernetes", m.FullName(), typ.Name())
	}
	if scalarOf(m) != optionsv1.Scalar_SCALAR_UNSPECIFIED {
		return // not an object; the differential tests compare the values
	}
	found, typed := 0, false
	for i := range typ.NumField() {
		f := typ.Field(i)
		if f.Type == reflect.TypeFor[k8smeta.TypeMeta]() {
			typed = true
			continue
		}
		found++
		s.field(m, typ, f)
	}
	if found != m.Fields().Len() {
		s.t.Errorf("%s has %d fields, %v has %d", m.FullName(), m.Fields().Len(), typ, found)
	}
	if typed != isKind(m) {
		s.t.Errorf("%s: option kind %v, TypeMeta in Kubernetes %v", m.FullName(), isKind(m), typed)
	}
}

func (s *shape) field(m protoreflect.MessageDescriptor, typ reflect.Type, f reflect.StructField) {
	jsonTag := strings.Split(f.Tag.Get("json"), ",")
	protoTag := strings.Split(f.Tag.Get("protobuf"), ",")
	if len(protoTag) < 2 {
		s.t.Errorf("%v.%s has no protobuf tag", typ, f.Name)
		return
	}
	name := protoName(f, jsonTag[0], protoTag)
	d := m.Fields().ByName(protoreflect.Name(name))
	if d == nil {
		s.t.Errorf("%s has no field %s", m.FullName(), name)
		return
	}
	check := func(what string, got, want any) {
		if got != want {
			s.t.Errorf("%s: %s is %v, Kubernetes has %v", d.FullName(), what, got, want)
		}
	}
	inline := jsonTag[0] == ""
	omitEmpty := strings.Contains(f.Tag.Get("json"), ",omitempty")
	omitZero := strings.Contains(f.Tag.Get("json"), ",omitzero")
	elem := f.Type
	pointer := elem.Kind() == reflect.Pointer
	if pointer {
		elem = elem.Elem()
	}

	check("number", strconv.Itoa(int(d.Number())), protoTag[1])
	check("inline", boolOption(d, optionsv1.E_Inline), inline)
	if !inline {
		check("JSON name", d.JSONName(), jsonTag[0])
		// encoding/json writes structs in spite of omitempty, unless omitzero is there too.
		written := !omitEmpty && !omitZero || elem.Kind() == reflect.Struct && !pointer && !omitZero
		check("always", boolOption(d, optionsv1.E_Always), written)
	}
	check("map", d.IsMap(), elem.Kind() == reflect.Map)
	list := elem.Kind() == reflect.Slice && elem.Elem().Kind() != reflect.Uint8
	check("list", d.IsList(), list)
	if elem.Kind() != reflect.Struct && !d.IsList() && !d.IsMap() {
		check("optional", d.HasOptionalKeyword(), pointer)
	}
	if elem.Kind() == reflect.Struct && boolOption(d, optionsv1.E_Always) {
		// Written as null when absent, rather than as an empty object.
		check("optional", d.HasOptionalKeyword(), pointer)
	}
	value := d
	switch {
	case d.IsMap():
		check("key", d.MapKey().Kind().String(), elem.Key().Kind().String())
		value, elem = d.MapValue(), elem.Elem()
	case d.IsList():
		elem = elem.Elem()
	}
	if value.Kind() == protoreflect.MessageKind && scalarOf(value.Message()) == optionsv1.Scalar_STRINGS {
		check("kind", elem.Kind(), reflect.Slice) // a list of its own, which protobuf's maps cannot have as a value
		s.message(value.Message(), elem)
		return
	}
	check("kind", value.Kind(), protoKind(elem))
	if value.Kind() == protoreflect.MessageKind && elem.Kind() == reflect.Struct {
		s.message(value.Message(), elem)
	}
	check("patch strategy", proto.GetExtension(d.Options(), optionsv1.E_PatchStrategy), f.Tag.Get("patchStrategy"))
	check("patch merge key", proto.GetExtension(d.Options(), optionsv1.E_PatchMergeKey), f.Tag.Get("patchMergeKey"))
}

// protoName returns the field's name in generated.proto, which few tags leave out.
func protoName(f reflect.StructField, jsonName string, tag []string) string {
	for _, part := range tag {
		if name, ok := strings.CutPrefix(part, "name="); ok {
			return name
		}
	}
	if jsonName != "" {
		return jsonName
	}
	return strings.ToLower(f.Name[:1]) + f.Name[1:]
}

func protoKind(t reflect.Type) protoreflect.Kind {
	switch t.Kind() {
	case reflect.String:
		return protoreflect.StringKind
	case reflect.Bool:
		return protoreflect.BoolKind
	case reflect.Int32:
		return protoreflect.Int32Kind
	case reflect.Int64:
		return protoreflect.Int64Kind
	case reflect.Slice:
		return protoreflect.BytesKind
	case reflect.Struct:
		return protoreflect.MessageKind
	}
	return 0
}
