package main

import (
	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	optionsv1 "monoplane.dev/api/options/v1"
)

// supports finds out which messages have fields, here or below, that are not fully supported.
type supports map[protoreflect.FullName]bool

// limited says whether a field is kept without effect, or refused.
func limited(f *protogen.Field) bool {
	s, _ := proto.GetExtension(f.Desc.Options(), optionsv1.E_Support).(optionsv1.Support)
	return s == optionsv1.Support_REFUSED || s == optionsv1.Support_STORED
}

// zeroOf says what the zero value of a field asks for.
func zeroOf(f *protogen.Field) optionsv1.Zero {
	return proto.GetExtension(f.Desc.Options(), optionsv1.E_Zero).(optionsv1.Zero)
}

// matter says whether m has such fields, here or below. A message that contains itself is taken to have some.
func (s supports) matter(m *protogen.Message) bool {
	if known, ok := s[m.Desc.FullName()]; ok {
		return known
	}
	s[m.Desc.FullName()] = true
	matters := false
	for _, f := range m.Fields {
		if limited(f) || below(f) && s.matter(f.Message) {
			matters = true
		}
	}
	s[m.Desc.FullName()] = matters
	return matters
}

// below says whether a field leads to fields below. Maps hold quantities and plain values only.
func below(f *protogen.Field) bool {
	return f.Desc.Kind() == protoreflect.MessageKind && !f.Desc.IsMap()
}

// generateLimited writes SetsLimited of a message that has limited fields, here or below.
func generateLimited(g *protogen.GeneratedFile, m *protogen.Message, s supports) {
	if !s.matter(m) {
		return
	}
	g.P("// SetsLimited says whether a field that is kept without effect, or refused, may be set, here or below. A zero")
	g.P("// value that is given explicitly counts where it asks for something.")
	g.P("func (x *", m.GoIdent, ") SetsLimited() bool {")
	g.P("if x == nil {")
	g.P("return false")
	g.P("}")
	for _, f := range m.Fields {
		v := "x." + f.GoName
		switch {
		case !limited(f) && (!below(f) || !s.matter(f.Message)):
		case oneof(f):
			g.P("if _, ok := x.", f.Oneof.GoName, ".(*", f.GoIdent, "); ok {")
			g.P("return true")
			g.P("}")
		case limited(f):
			g.P("if ", setExpr(f, v), " {")
			g.P("return true")
			g.P("}")
		case f.Desc.IsList():
			g.P("for _, v := range ", v, " {")
			g.P("if v.SetsLimited() {")
			g.P("return true")
			g.P("}")
			g.P("}")
		default:
			g.P("if ", v, ".SetsLimited() {")
			g.P("return true")
			g.P("}")
		}
	}
	g.P("return false")
	g.P("}")
	g.P()
}

// setExpr says whether value v of field f asks for something that is limited.
func setExpr(f *protogen.Field, v string) string {
	kind := f.Desc.Kind()
	switch {
	case zeroOf(f) == optionsv1.Zero_ZERO_ASKS:
		return v + " != nil"
	case f.Desc.IsList(), f.Desc.IsMap(), kind == protoreflect.BytesKind:
		return "len(" + v + ") > 0"
	case kind == protoreflect.MessageKind:
		return v + " != nil"
	}
	present := ""
	if optional(f) {
		present, v = v+" != nil && ", "*"+v
	}
	switch kind {
	case protoreflect.StringKind:
		return present + v + ` != ""`
	case protoreflect.BoolKind:
		return present + v
	default:
		return present + v + " != 0"
	}
}
