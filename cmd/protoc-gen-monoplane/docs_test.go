package main

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// Comments become one line each, in order, without what only readers of the .proto file can use.
func TestCommentsBecomeDocs(t *testing.T) {
	comment := func(text string, path ...int32) *descriptorpb.SourceCodeInfo_Location {
		return &descriptorpb.SourceCodeInfo_Location{Path: path, Span: []int32{0, 0, 0}, LeadingComments: &text}
	}
	file := &descriptorpb.FileDescriptorProto{
		Name: proto.String("x/v1/x.proto"), Package: proto.String("x.v1"), Syntax: proto.String("proto3"),
		Options: &descriptorpb.FileOptions{GoPackage: proto.String("monoplane.dev/api/x/v1;xv1")},
		MessageType: []*descriptorpb.DescriptorProto{
			{Name: proto.String("Y")},
			{Name: proto.String("X"), Field: []*descriptorpb.FieldDescriptorProto{
				field("second", 1, descriptorpb.FieldDescriptorProto_TYPE_STRING),
				field("first", 2, descriptorpb.FieldDescriptorProto_TYPE_STRING),
				field("bare", 3, descriptorpb.FieldDescriptorProto_TYPE_STRING),
			}},
		},
		SourceCodeInfo: &descriptorpb.SourceCodeInfo{Location: []*descriptorpb.SourceCodeInfo_Location{
			comment(" Y is \"quoted\".\n", 4, 0),
			comment(" X is one,\n and two.\n\n And three.\n", 4, 1),
			comment(" Never goes back (LIFE-1). Always \\ever.\n", 4, 1, 2, 0),
			comment(" The first.\n", 4, 1, 2, 1),
		}},
	}
	plugin, err := protogen.Options{}.New(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{file.GetName()}, ProtoFile: []*descriptorpb.FileDescriptorProto{file},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := generate(plugin); err != nil {
		t.Fatal(err)
	}
	const want = `const Docs = "" +
	"X\tX is one, and two. And three.\n" +
	"X.first\tThe first.\n" +
	"X.second\tNever goes back. Always \\ever.\n" +
	"Y\tY is \"quoted\".\n"
`
	for _, f := range plugin.Response().GetFile() {
		if strings.HasSuffix(f.GetName(), "/docs_monoplane.pb.go") {
			if !strings.HasSuffix(f.GetContent(), want) {
				t.Errorf("wrote:\n%s\nwant at the end:\n%s", f.GetContent(), want)
			}
			return
		}
	}
	t.Error("no docs were written")
}

// A package without comments gets no file.
func TestNoCommentsNoDocs(t *testing.T) {
	files, err := run([]*descriptorpb.FieldDescriptorProto{field("a", 1, descriptorpb.FieldDescriptorProto_TYPE_STRING)},
		nil)
	if err != nil {
		t.Fatal(err)
	}
	for name := range files {
		if strings.Contains(name, "docs") {
			t.Errorf("wrote %s", name)
		}
	}
}
