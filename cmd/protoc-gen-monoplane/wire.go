package main

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const wirePath = protogen.GoImportPath("monoplane.dev/codec/wire")

// generateWire writes AppendProtobuf of one message.
func generateWire(g *protogen.GeneratedFile, m *protogen.Message) error {
	g.P("// AppendProtobuf appends the protobuf form of x to e; nil counts as empty.")
	g.P("func (x *", m.GoIdent, ") AppendProtobuf(e *", wirePath.Ident("Encoder"), ") {")
	g.P("if x == nil {")
	g.P("return")
	g.P("}")
	fields := slices.Clone(m.Fields)
	slices.SortFunc(fields, func(a, b *protogen.Field) int { return int(a.Desc.Number() - b.Desc.Number()) })
	for _, f := range fields {
		if f.Desc.IsList() && !f.Desc.IsPacked() && f.Desc.Kind() != protoreflect.StringKind &&
			f.Desc.Kind() != protoreflect.MessageKind {
			return fmt.Errorf("%s: lists of numbers must be packed", f.Desc.FullName())
		}
		if oneof(f) {
			g.P("if o, ok := x.", f.Oneof.GoName, ".(*", f.GoIdent, "); ok {")
			wireField(g, f, "o."+f.GoName)
			g.P("}")
			continue
		}
		wireImplicit(g, f, "x."+f.GoName)
	}
	g.P("e.Raw(x.unknownFields)")
	g.P("}")
	g.P()
	return nil
}

// wireImplicit writes a field unless it is absent.
func wireImplicit(g *protogen.GeneratedFile, f *protogen.Field, v string) {
	var present string
	switch kind := f.Desc.Kind(); {
	case f.Desc.IsList(), f.Desc.IsMap(): // an empty one writes nothing
		wireField(g, f, v)
		return
	case kind == protoreflect.MessageKind, optional(f):
		present = v + " != nil"
		if optional(f) && kind != protoreflect.BytesKind {
			v = "*" + v
		}
	case kind == protoreflect.StringKind:
		present = v + ` != ""`
	case kind == protoreflect.BytesKind:
		present = "len(" + v + ") > 0"
	case kind == protoreflect.BoolKind:
		present = v
	default:
		present = v + " != 0"
	}
	g.P("if ", present, " {")
	wireField(g, f, v)
	g.P("}")
}

// wireField writes value v of a field.
func wireField(g *protogen.GeneratedFile, f *protogen.Field, v string) {
	n := f.Desc.Number()
	method := func(name string) { g.P("e.", name, "(", n, ", ", v, ")") }
	function := func(name string) { g.P(wirePath.Ident(name), "(e, ", n, ", ", v, ")") }
	switch kind := f.Desc.Kind(); {
	case f.Desc.IsMap():
		switch f.Message.Fields[1].Desc.Kind() {
		case protoreflect.MessageKind:
			function("MessageMap")
		case protoreflect.BytesKind:
			method("BytesMap")
		default:
			method("StringMap")
		}
	case f.Desc.IsList() && kind == protoreflect.MessageKind:
		function("Messages")
	case f.Desc.IsList() && kind == protoreflect.StringKind:
		method("Strings")
	case f.Desc.IsList():
		function("Ints")
	case kind == protoreflect.MessageKind:
		g.P("at := e.Begin(", n, ")")
		g.P(v, ".AppendProtobuf(e)")
		g.P("e.End(at)")
	case kind == protoreflect.StringKind:
		method("String")
	case kind == protoreflect.BytesKind:
		method("Bytes")
	case kind == protoreflect.BoolKind:
		method("Bool")
	case kind == protoreflect.Int32Kind:
		g.P("e.Int(", n, ", int64(", v, "))")
	default:
		method("Int")
	}
}
