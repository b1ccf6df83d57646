package main

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"

	optionsv1 "monoplane.dev/api/options/v1"
)

// run runs the plugin on a file with one message and returns the files written.
func run(
	fields []*descriptorpb.FieldDescriptorProto, options *descriptorpb.MessageOptions,
	nested ...*descriptorpb.DescriptorProto,
) (map[string]string, error) {
	file := &descriptorpb.FileDescriptorProto{
		Name: proto.String("x/v1/x.proto"), Package: proto.String("x.v1"), Syntax: proto.String("proto3"),
		Dependency: []string{"monoplane/options/v1/options.proto", "google/protobuf/descriptor.proto"},
		Options:    &descriptorpb.FileOptions{GoPackage: proto.String("monoplane.dev/api/x/v1;xv1")},
		MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("X"), Field: fields, NestedType: nested,
			Options: options}},
	}
	for _, f := range fields {
		if f.GetProto3Optional() {
			presence := &descriptorpb.OneofDescriptorProto{Name: proto.String("_" + f.GetName())}
			file.MessageType[0].OneofDecl = []*descriptorpb.OneofDescriptorProto{presence}
		}
	}
	return pass(file, generate)
}

// pass runs a pass of the plugin on one file and returns the files written.
func pass(file *descriptorpb.FileDescriptorProto, generate func(*protogen.Plugin) error) (map[string]string, error) {
	plugin, err := protogen.Options{}.New(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{file.GetName()},
		ProtoFile: []*descriptorpb.FileDescriptorProto{
			protodesc.ToFileDescriptorProto(descriptorpb.File_google_protobuf_descriptor_proto),
			protodesc.ToFileDescriptorProto(optionsv1.File_monoplane_options_v1_options_proto),
			file,
		},
	})
	if err != nil {
		return nil, err
	}
	if err := generate(plugin); err != nil {
		return nil, err
	}
	written := make(map[string]string)
	for _, f := range plugin.Response().GetFile() {
		written[f.GetName()] = f.GetContent()
	}
	return written, nil
}

func field(name string, number int32, kind descriptorpb.FieldDescriptorProto_Type) *descriptorpb.FieldDescriptorProto {
	return &descriptorpb.FieldDescriptorProto{
		Name: &name, JsonName: &name, Number: &number, Type: &kind,
		Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
	}
}

func TestFieldsWithoutJSONAreRefused(t *testing.T) {
	list := field("list", 1, descriptorpb.FieldDescriptorProto_TYPE_BYTES)
	list.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
	enum := field("enum", 1, descriptorpb.FieldDescriptorProto_TYPE_ENUM)
	enum.TypeName = proto.String(".monoplane.options.v1.Support")
	foreign := field("foreign", 1, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE)
	foreign.TypeName = proto.String(".google.protobuf.FieldOptions")
	inlinedText := field("text", 1, descriptorpb.FieldDescriptorProto_TYPE_STRING)
	inlinedText.Options = new(descriptorpb.FieldOptions)
	proto.SetExtension(inlinedText.Options, optionsv1.E_Inline, true)
	zero := field("f", 1, descriptorpb.FieldDescriptorProto_TYPE_INT64)
	zero.Options = new(descriptorpb.FieldOptions)
	proto.SetExtension(zero.Options, optionsv1.E_Zero, optionsv1.Zero_ZERO_ASKS)
	for _, test := range []struct {
		field *descriptorpb.FieldDescriptorProto
		want  string
	}{
		{field("f", 1, descriptorpb.FieldDescriptorProto_TYPE_DOUBLE), "x.v1.X.f: fields of kind double are not supported"},
		{field("f", 1, descriptorpb.FieldDescriptorProto_TYPE_UINT32), "x.v1.X.f: fields of kind uint32 are not supported"},
		{enum, "x.v1.X.enum: fields of kind enum are not supported"},
		{list, "x.v1.X.list: lists of bytes are not supported"},
		{foreign, "x.v1.X.foreign: messages of google.protobuf have no JSON codec"},
		{inlinedText, "x.v1.X.text: only single messages can be inlined"},
		{zero, "x.v1.X.f: only optional fields have a zero that can be told from absence"},
	} {
		if _, err := run([]*descriptorpb.FieldDescriptorProto{test.field}, nil); err == nil || err.Error() != test.want {
			t.Errorf("got %v, want %s", err, test.want)
		}
	}
}

func TestMapsWithoutJSONAreRefused(t *testing.T) {
	for _, test := range []struct {
		key, value descriptorpb.FieldDescriptorProto_Type
		want       string
	}{
		{descriptorpb.FieldDescriptorProto_TYPE_INT32, descriptorpb.FieldDescriptorProto_TYPE_STRING,
			"x.v1.X.m: map keys must be strings"},
		{descriptorpb.FieldDescriptorProto_TYPE_STRING, descriptorpb.FieldDescriptorProto_TYPE_INT64,
			"x.v1.X.m: collections of int64 are not supported"},
	} {
		m := field("m", 1, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE)
		m.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
		m.TypeName = proto.String(".x.v1.X.MEntry")
		entry := &descriptorpb.DescriptorProto{
			Name:    proto.String("MEntry"),
			Field:   []*descriptorpb.FieldDescriptorProto{field("key", 1, test.key), field("value", 2, test.value)},
			Options: &descriptorpb.MessageOptions{MapEntry: proto.Bool(true)},
		}
		if _, err := run([]*descriptorpb.FieldDescriptorProto{m}, nil, entry); err == nil || err.Error() != test.want {
			t.Errorf("got %v, want %s", err, test.want)
		}
	}
}

func TestObjectsAreLimited(t *testing.T) {
	var fields []*descriptorpb.FieldDescriptorProto
	for i := range int32(65) {
		fields = append(fields, field(fmt.Sprint("f", i), i+1, descriptorpb.FieldDescriptorProto_TYPE_STRING))
	}
	if _, err := run(fields, nil); err == nil || err.Error() != "x.v1.X: more than 64 fields" {
		t.Errorf("got %v", err)
	}
	if _, err := run(fields[:64], nil); err != nil {
		t.Error(err)
	}
	options := new(descriptorpb.MessageOptions)
	proto.SetExtension(options, optionsv1.E_Kind, &optionsv1.Kind{Version: "v1", Kind: "X", Plural: "xs", Singular: "x"})
	if _, err := run(fields[:1], options); err == nil || err.Error() != "x.v1.X: a kind needs a field metadata" {
		t.Errorf("got %v", err)
	}
}

func TestEmptyMessages(t *testing.T) {
	written, err := run(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	text := written["monoplane.dev/api/x/v1/x_monoplane.pb.go"]
	if !strings.Contains(text, "func (x *X) AppendJSON(") || !strings.Contains(text, "func (x *X) DecodeJSON(") ||
		len(written) != 1 {
		t.Errorf("got %v", written)
	}
}
