package main

import (
	"strconv"

	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// append writes AppendJSON of a message that is a JSON object. Each field is followed by a comma; Close puts
// the brace over the last one.
func (c *codec) append() {
	g := c.g
	g.P("// AppendJSON appends the JSON form of x to b; nil counts as empty.")
	g.P("func (x *", c.m.GoIdent, ") AppendJSON(b []byte) []byte {")
	if len(c.m.Fields) > 0 {
		g.P("if x == nil {")
		g.P("x = new(", c.m.GoIdent, ")")
		g.P("}")
	}
	g.P("b = append(b, '{')")
	c.appendFields("x", c.m)
	g.P("return ", c.runtime("Close"), "(b)")
	g.P("}")
	g.P()
}

// appendFields writes the fields of m, found in variable x.
func (c *codec) appendFields(x string, m *protogen.Message) {
	for _, f := range m.Fields {
		if inlined(f) {
			c.appendInlined(x, f)
			continue
		}
		c.appendField(x, f)
	}
}

func (c *codec) appendInlined(x string, f *protogen.Field) {
	g := c.g
	v := "in" + f.GoName
	if hasAlways(f.Message) {
		g.P(v, " := ", x, ".", f.GoName)
		g.P("if ", v, " == nil {")
		g.P(v, " = new(", f.Message.GoIdent, ")")
		g.P("}")
		c.appendFields(v, f.Message)
		return
	}
	g.P("if ", v, " := ", x, ".", f.GoName, "; ", v, " != nil {")
	c.appendFields(v, f.Message)
	g.P("}")
}

// hasAlways says whether an empty m has fields in JSON.
func hasAlways(m *protogen.Message) bool {
	for _, f := range m.Fields {
		if always(f) || (inlined(f) && hasAlways(f.Message)) {
			return true
		}
	}
	return false
}

func (c *codec) appendField(x string, f *protogen.Field) {
	g := c.g
	v := x + "." + f.GoName
	name := f.Desc.JSONName()
	if oneof(f) {
		g.P("if o, ok := ", x, ".", f.Oneof.GoName, ".(*", f.GoIdent, "); ok {")
		c.appendValue(name, f, "o."+f.GoName)
		g.P("}")
		return
	}
	if always(f) {
		c.appendAlways(name, f, v)
		return
	}
	switch {
	case f.Desc.IsList(), f.Desc.IsMap():
		g.P("if len(", v, ") > 0 {")
	case isMessage(f) && isTime(f.Message):
		g.P("if v := ", v, "; v != nil && !", c.runtime("ZeroTime"), "(v.Seconds, v.Nanos) {")
		v = "v"
	case isMessage(f), optional(f):
		g.P("if ", v, " != nil {")
	case f.Desc.Kind() == protoreflect.StringKind:
		g.P("if ", v, " != \"\" {")
	case f.Desc.Kind() == protoreflect.BytesKind:
		g.P("if len(", v, ") > 0 {")
	case f.Desc.Kind() == protoreflect.BoolKind:
		g.P("if ", v, " {")
	default:
		g.P("if ", v, " != 0 {")
	}
	if optional(f) && f.Desc.Kind() != protoreflect.BytesKind {
		v = "*" + v
	}
	c.appendValue(name, f, v)
	g.P("}")
}

func (c *codec) appendAlways(name string, f *protogen.Field, v string) {
	g := c.g
	switch {
	case f.Desc.IsList() && kindOf(f.Parent) != nil && name == "items":
		c.appendValue(name, f, v) // clients expect [] rather than null
	case f.Desc.IsList(), f.Desc.IsMap(), optional(f), nullable(f):
		g.P("if ", v, " != nil {")
		if optional(f) && f.Desc.Kind() != protoreflect.BytesKind {
			v = "*" + v
		}
		c.appendValue(name, f, v)
		g.P("} else {")
		g.P("b = append(b, ", strconv.Quote(strconv.Quote(name)+":null,"), "...)")
		g.P("}")
	default:
		c.appendValue(name, f, v)
	}
}

// appendValue writes the field's name and value v, and a comma.
func (c *codec) appendValue(name string, f *protogen.Field, v string) {
	g := c.g
	g.P("b = append(b, ", strconv.Quote(strconv.Quote(name)+":"), "...)")
	g.P("b = append(", c.valueExpr(f, v), ", ',')")
}

func (c *codec) valueExpr(f *protogen.Field, v string) string {
	if f.Desc.IsMap() {
		switch f.Message.Fields[1].Desc.Kind() {
		case protoreflect.StringKind:
			return c.runtime("AppendStringMap") + "(b, " + v + ")"
		case protoreflect.BytesKind:
			return c.runtime("AppendBytesMap") + "(b, " + v + ")"
		default:
			return c.runtime("AppendMessageMap") + "(b, " + v + ")"
		}
	}
	if f.Desc.IsList() {
		switch f.Desc.Kind() {
		case protoreflect.StringKind:
			return c.runtime("AppendStrings") + "(b, " + v + ")"
		case protoreflect.MessageKind:
			if kindOf(f.Message) != nil && kindOf(f.Parent) == nil { // such as the claims of a StatefulSet
				return c.runtime("AppendObjects") + "(b, " + v + ")"
			}
			return c.runtime("AppendMessages") + "(b, " + v + ")"
		default:
			return c.runtime("AppendInts") + "(b, " + v + ")"
		}
	}
	switch f.Desc.Kind() {
	case protoreflect.StringKind:
		return c.runtime("AppendString") + "(b, " + v + ")"
	case protoreflect.BytesKind:
		return c.runtime("AppendBytes") + "(b, " + v + ")"
	case protoreflect.BoolKind:
		return c.runtime("AppendBool") + "(b, " + v + ")"
	case protoreflect.MessageKind:
		return v + ".AppendJSON(b)"
	case protoreflect.Int32Kind:
		return c.runtime("AppendInt") + "(b, int64(" + v + "))"
	default:
		return c.runtime("AppendInt") + "(b, " + v + ")"
	}
}
