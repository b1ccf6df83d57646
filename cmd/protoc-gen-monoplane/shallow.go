package main

import "google.golang.org/protobuf/compiler/protogen"

// generateShallow writes Shallow of one message.
func generateShallow(g *protogen.GeneratedFile, m *protogen.Message) {
	name := m.GoIdent.GoName
	g.P("// Shallow returns a copy of x that shares with x all that its fields point to.")
	g.P("func (x *", name, ") Shallow() *", name, " {")
	g.P("if x == nil {")
	g.P("return nil")
	g.P("}")
	g.P("c := new(", name, ")")
	g.P("c.SetShallow(x)")
	g.P("return c")
	g.P("}")
	g.P()
}

// generateSetShallow writes SetShallow of one message. Go's assignment cannot do it, because the messages
// carry state that must not be copied, and reflection takes ten times as long.
func generateSetShallow(g *protogen.GeneratedFile, m *protogen.Message) {
	name, message := m.GoIdent.GoName, g.QualifiedGoIdent(protoPath.Ident("Message"))
	g.P("// SetShallow makes x a copy of m that shares with m all that its fields point to; a nil m leaves nothing in " +
		"x. It")
	g.P("// returns false, and changes nothing, when m is of another type.")
	g.P("func (x *", name, ") SetShallow(m ", message, ") bool {")
	g.P("from, ok := m.(*", name, ")")
	g.P("if !ok {")
	g.P("return false")
	g.P("}")
	g.P("if from == nil {")
	g.P("from = new(", name, ")")
	g.P("}")
	for _, f := range m.Fields {
		if !oneof(f) {
			g.P("x.", f.GoName, " = from.", f.GoName)
		}
	}
	for _, o := range oneofs(m) {
		g.P("x.", o.GoName, " = from.", o.GoName)
	}
	g.P("x.unknownFields = from.unknownFields")
	g.P("return true")
	g.P("}")
	g.P()
}
