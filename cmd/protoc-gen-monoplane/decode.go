package main

import (
	"strconv"

	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// decode writes DecodeJSON of a message that is a JSON object: one switch over the names of its fields and
// of those inlined in it, and one bit per name to find duplicates.
func (c *codec) decode() {
	g := c.g
	g.P("// DecodeJSON reads the JSON form of x from d.")
	g.P("func (x *", c.m.GoIdent, ") DecodeJSON(d *", c.runtime("Decoder"), ") {")
	g.P("if !d.Object() {")
	g.P("return")
	g.P("}")
	typed := kindOf(c.m) != nil
	if typed || len(c.m.Fields) > 0 {
		g.P("var seen uint64")
		g.P("for d.More() {")
		g.P("switch string(d.Key()) {")
		if typed {
			c.decodeCase("kind")
			g.P("d.Kind()")
			c.decodeCase("apiVersion")
			g.P("d.APIVersion()")
		}
		c.decodeFields("x", c.m)
		g.P("default:")
		g.P("d.Unknown()")
		g.P("}")
		g.P("}")
	} else {
		g.P("for d.More() {")
		g.P("d.Unknown()")
		g.P("}")
	}
	g.P("}")
	g.P()
}

func (c *codec) decodeCase(name string) {
	c.g.P("case ", strconv.Quote(name), ":")
	c.g.P("d.Once(&seen, ", c.fields, ")")
	c.fields++
}

// decodeFields writes the cases for the fields of m, found in variable x.
func (c *codec) decodeFields(x string, m *protogen.Message, parents ...*protogen.Field) {
	for _, f := range m.Fields {
		if inlined(f) {
			c.decodeFields(x+"."+f.GoName, f.Message, append(parents[:len(parents):len(parents)], f)...)
			continue
		}
		c.decodeCase(f.Desc.JSONName())
		outer := "x"
		for _, p := range parents {
			outer += "." + p.GoName
			c.makeMessage(outer, p.Message)
		}
		c.decodeField(x, f)
	}
}

func (c *codec) makeMessage(v string, m *protogen.Message) {
	c.g.P("if ", v, " == nil {")
	c.g.P(v, " = new(", m.GoIdent, ")")
	c.g.P("}")
}

func (c *codec) decodeField(x string, f *protogen.Field) {
	g := c.g
	v := x + "." + f.GoName
	switch {
	case oneof(f):
		g.P("if !d.Null() {")
		g.P("o := new(", f.GoIdent, ")")
		if isMessage(f) {
			g.P("o.", f.GoName, " = new(", f.Message.GoIdent, ")")
			g.P("o.", f.GoName, ".DecodeJSON(d)")
		} else {
			g.P("d.", decoderMethod(f), "(&o.", f.GoName, ")")
		}
		g.P(x, ".", f.Oneof.GoName, " = o")
		g.P("}")
	case f.Desc.IsMap():
		name := "MessageMap"
		switch f.Message.Fields[1].Desc.Kind() {
		case protoreflect.StringKind:
			name = "StringMap"
		case protoreflect.BytesKind:
			name = "BytesMap"
		}
		g.P(c.runtime(name), "(d, &", v, ")")
	case f.Desc.IsList():
		name := "Messages"
		switch f.Desc.Kind() {
		case protoreflect.StringKind:
			name = "Strings"
		case protoreflect.Int64Kind:
			name = "Int64s"
		case protoreflect.Int32Kind:
			name = "Int32s"
		}
		g.P(c.runtime(name), "(d, &", v, ")")
	case isMessage(f):
		c.decodeMessage(v, f)
	case optional(f) && f.Desc.Kind() != protoreflect.BytesKind:
		g.P("d.Optional", decoderMethod(f), "(&", v, ")")
	default:
		g.P("d.", decoderMethod(f), "(&", v, ")")
	}
}

// decodeMessage writes the decoding of a single message. Null takes away what is a pointer in Kubernetes and
// leaves alone what is a struct there, which always is written.
func (c *codec) decodeMessage(v string, f *protogen.Field) {
	g := c.g
	if always(f) && !nullable(f) && !isTime(f.Message) {
		g.P("if !d.Null() {")
	} else {
		g.P("if d.Null() {")
		g.P(v, " = nil")
		g.P("} else {")
	}
	c.makeMessage(v, f.Message)
	g.P(v, ".DecodeJSON(d)")
	g.P("}")
}

func decoderMethod(f *protogen.Field) string {
	switch f.Desc.Kind() {
	case protoreflect.StringKind:
		return "String"
	case protoreflect.BytesKind:
		return "Bytes"
	case protoreflect.BoolKind:
		return "Bool"
	case protoreflect.Int32Kind:
		return "Int32"
	default:
		return "Int64"
	}
}
