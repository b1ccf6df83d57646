package main

import "google.golang.org/protobuf/compiler/protogen"

// generateShallow writes Shallow of one message. Go's assignment cannot do it, because the messages carry state
// that must not be copied, and reflection takes ten times as long.
func generateShallow(g *protogen.GeneratedFile, m *protogen.Message) {
	name := m.GoIdent.GoName
	g.P("// Shallow returns a copy of x that shares with x all that its fields point to.")
	g.P("func (x *", name, ") Shallow() *", name, " {")
	g.P("if x == nil {")
	g.P("return nil")
	g.P("}")
	g.P("return &", name, "{")
	for _, f := range m.Fields {
		field := f.GoName
		if o := f.Oneof; o != nil && !o.Desc.IsSynthetic() {
			if f != o.Fields[0] {
				continue
			}
			field = o.GoName
		}
		g.P(field, ": x.", field, ",")
	}
	g.P("unknownFields: x.unknownFields,")
	g.P("}")
	g.P("}")
	g.P()
}
