package main

import (
	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const (
	clonePath = protogen.GoImportPath("monoplane.dev/codec/clone")
	protoPath = protogen.GoImportPath("google.golang.org/protobuf/proto")
)

// generateClone writes Clone, CloneTo and CloneMessage of one message.
func generateClone(g *protogen.GeneratedFile, m *protogen.Message) {
	name, message := m.GoIdent.GoName, g.QualifiedGoIdent(protoPath.Ident("Message"))
	g.P("// Clone returns a deep copy of x.")
	g.P("func (x *", name, ") Clone() *", name, " {")
	g.P("if x == nil {")
	g.P("return nil")
	g.P("}")
	g.P("c := new(", name, ")")
	g.P("x.CloneTo(c)")
	g.P("return c")
	g.P("}")
	g.P()
	g.P("// CloneTo makes c, which must be new, a deep copy of x. A nil x leaves it empty.")
	g.P("func (x *", name, ") CloneTo(c *", name, ") {")
	g.P("if x == nil {")
	g.P("return")
	g.P("}")
	for _, f := range m.Fields {
		if !oneof(f) {
			g.P("c.", f.GoName, " = ", cloneExpr(g, f, "x."+f.GoName))
		}
	}
	for _, o := range oneofs(m) {
		cloneOneof(g, o)
	}
	g.P("c.unknownFields = ", clonePath.Ident("List"), "(x.unknownFields)")
	g.P("}")
	g.P()
	g.P("// CloneMessage is Clone for those who do not know the type.")
	g.P("func (x *", name, ") CloneMessage() ", message, " { return x.Clone() }")
	g.P()
}

// oneofs returns the oneofs that the .proto spells out.
func oneofs(m *protogen.Message) []*protogen.Oneof {
	var list []*protogen.Oneof
	for _, o := range m.Oneofs {
		if !o.Desc.IsSynthetic() {
			list = append(list, o)
		}
	}
	return list
}

func cloneOneof(g *protogen.GeneratedFile, o *protogen.Oneof) {
	g.P("switch o := x.", o.GoName, ".(type) {")
	for _, f := range o.Fields {
		g.P("case *", f.GoIdent, ":")
		g.P("c.", o.GoName, " = &", f.GoIdent, "{", f.GoName, ": ", cloneExpr(g, f, "o."+f.GoName), "}")
	}
	g.P("}")
}

// cloneExpr is the copy of value v of field f.
func cloneExpr(g *protogen.GeneratedFile, f *protogen.Field, v string) string {
	call := func(name string) string { return g.QualifiedGoIdent(clonePath.Ident(name)) + "(" + v + ")" }
	kind := f.Desc.Kind()
	switch {
	case f.Desc.IsMap():
		switch f.Message.Fields[1].Desc.Kind() {
		case protoreflect.MessageKind:
			return call("MessageMap")
		case protoreflect.BytesKind:
			return call("BytesMap")
		}
		return call("Map")
	case f.Desc.IsList():
		if kind == protoreflect.MessageKind {
			return call("Messages")
		}
		return call("List")
	case kind == protoreflect.MessageKind:
		return v + ".Clone()"
	case kind == protoreflect.BytesKind:
		if optional(f) || oneof(f) {
			return call("Optional")
		}
		return call("List")
	case optional(f):
		return call("Pointer")
	}
	return v
}
