package main

import (
	"fmt"

	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/reflect/protoreflect"

	optionsv1 "monoplane.dev/api/options/v1"
)

const runtimePath = protogen.GoImportPath("monoplane.dev/codec/json")

// codec writes AppendJSON and DecodeJSON of one message.
type codec struct {
	g *protogen.GeneratedFile
	m *protogen.Message
	// fields counts the names in the JSON object so far.
	fields int
}

func (c *codec) generate() error {
	if s := scalarOf(c.m); s != optionsv1.Scalar_SCALAR_UNSPECIFIED {
		return c.scalar(s)
	}
	if err := check(c.m); err != nil {
		return err
	}
	c.append()
	c.decode()
	if c.fields > 64 {
		return fmt.Errorf("%s: more than 64 fields", c.m.Desc.FullName())
	}
	return nil
}

// runtime returns the qualified name of something in package codec/json.
func (c *codec) runtime(name string) string { return c.g.QualifiedGoIdent(runtimePath.Ident(name)) }

// check refuses fields that the codec cannot express.
func check(m *protogen.Message) error {
	for _, f := range m.Fields {
		value := f
		if f.Desc.IsMap() {
			if f.Message.Fields[0].Desc.Kind() != protoreflect.StringKind {
				return fmt.Errorf("%s: map keys must be strings", f.Desc.FullName())
			}
			value = f.Message.Fields[1]
		}
		switch value.Desc.Kind() {
		case protoreflect.BytesKind:
			if f.Desc.IsList() {
				return fmt.Errorf("%s: lists of bytes are not supported", f.Desc.FullName())
			}
		case protoreflect.StringKind:
		case protoreflect.BoolKind, protoreflect.Int32Kind, protoreflect.Int64Kind:
			if f.Desc.IsMap() || (f.Desc.IsList() && value.Desc.Kind() == protoreflect.BoolKind) {
				return fmt.Errorf("%s: collections of %s are not supported", f.Desc.FullName(), value.Desc.Kind())
			}
		case protoreflect.MessageKind:
			if value.Message.Desc.ParentFile().Package() == "google.protobuf" {
				return fmt.Errorf("%s: messages of google.protobuf have no JSON codec", f.Desc.FullName())
			}
		default:
			return fmt.Errorf("%s: fields of kind %s are not supported", f.Desc.FullName(), value.Desc.Kind())
		}
		if !optional(f) && zeroOf(f) != optionsv1.Zero_ZERO_UNSPECIFIED {
			return fmt.Errorf("%s: only optional fields have a zero that can be told from absence", f.Desc.FullName())
		}
		if inlined(f) {
			if f.Desc.Kind() != protoreflect.MessageKind || f.Desc.IsList() || f.Desc.IsMap() || oneof(f) {
				return fmt.Errorf("%s: only single messages can be inlined", f.Desc.FullName())
			}
			if err := check(f.Message); err != nil {
				return err
			}
		}
	}
	return nil
}

// oneof says whether f is a member of a oneof that the .proto spells out.
func oneof(f *protogen.Field) bool { return f.Oneof != nil && !f.Oneof.Desc.IsSynthetic() }

// isMessage says whether f is a single message.
func isMessage(f *protogen.Field) bool {
	return f.Desc.Kind() == protoreflect.MessageKind && !f.Desc.IsList() && !f.Desc.IsMap()
}

// optional says whether f holds a pointer to a plain value, or bytes that can be absent.
func optional(f *protogen.Field) bool {
	return f.Desc.HasOptionalKeyword() && f.Desc.Kind() != protoreflect.MessageKind
}

// nullable says whether f is a single message that is written even when absent, as null: what Kubernetes has
// as a pointer without omitempty, and the .proto as optional.
func nullable(f *protogen.Field) bool {
	return isMessage(f) && always(f) && f.Desc.HasOptionalKeyword()
}
