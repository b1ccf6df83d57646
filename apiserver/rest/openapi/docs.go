package openapi

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"monoplane.dev/api/services"

	optionsv1 "monoplane.dev/api/options/v1"
)

// docs are the descriptions of messages and fields. They are needed while the documents are made, and only then.
type docs map[protoreflect.FullName]string

// readDocs reads what the generator has taken from the .proto files of the packages that schemas come from.
func readDocs() docs {
	all := make(docs)
	for name, text := range services.Docs() {
		for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
			field, description, _ := strings.Cut(line, "\t")
			all[name.Append(protoreflect.Name(field))] = description
		}
	}
	return all
}

// describe puts the description of a message or a field into its schema.
func (d docs) describe(schema map[string]any, name protoreflect.FullName) {
	if text := d[name]; text != "" {
		schema["description"] = text
	}
}

// describeField puts the description of a field into its schema, with what Monoplane does not do about it.
func (d docs) describeField(schema map[string]any, f protoreflect.FieldDescriptor) {
	d.describe(schema, f.FullName())
	support, _ := proto.GetExtension(f.Options(), optionsv1.E_Support).(optionsv1.Support)
	text, _ := schema["description"].(string)
	switch support {
	case optionsv1.Support_REFUSED:
		schema["description"] = strings.TrimSpace(text + " Not supported yet: setting it is refused.")
	case optionsv1.Support_STORED:
		schema["description"] = strings.TrimSpace(text + " Kept, but without effect yet.")
	}
}
