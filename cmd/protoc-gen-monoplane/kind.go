package main

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/compiler/protogen"

	optionsv1 "monoplane.dev/api/options/v1"
)

const (
	objectPath = protogen.GoImportPath("monoplane.dev/object")
	metaPath   = protogen.GoImportPath("monoplane.dev/api/meta/v1")
)

// goPackage collects what is written once per package.
type goPackage struct {
	first *protogen.File
	files []*protogen.File
	kinds []string
	// documented says that there are Docs.
	documented bool
	// supports is shared by all packages.
	supports supports
}

// generate writes the file with what is written once.
func (pkg *goPackage) generate(p *protogen.Plugin) {
	if len(pkg.kinds) == 0 {
		return
	}
	dir := pkg.first.GeneratedFilenamePrefix
	dir = dir[:strings.LastIndexByte(dir, '/')+1]
	g := p.NewGeneratedFile(dir+"kinds_monoplane.pb.go", pkg.first.GoImportPath)
	header(g, pkg.first)
	kind := g.QualifiedGoIdent(objectPath.Ident("Kind"))
	g.P("// Kinds returns the kinds of this package.")
	g.P("func Kinds() []*", kind, " {")
	g.P("return []*", kind, "{", strings.Join(pkg.kinds, ", "), "}")
	g.P("}")
}

// generateKind writes what a message that carries apiVersion and kind needs besides its codec.
func generateKind(
	g *protogen.GeneratedFile, file *protogen.File, m *protogen.Message, k *optionsv1.Kind, pkg *goPackage,
) error {
	g.P("// TypeMeta returns the apiVersion and kind that JSON and protobuf bodies carry.")
	g.P("func (x *", m.GoIdent, ") TypeMeta() (apiVersion, kind string) {")
	g.P("return ", strconv.Quote(apiVersion(k)), ", ", strconv.Quote(k.GetKind()))
	g.P("}")
	g.P()
	if k.GetPlural() != "" {
		return generateObject(g, file, m, k, pkg)
	}
	if items := itemsOf(m); items != nil && kindOf(items) != nil && kindOf(items).GetPlural() != "" {
		generateList(g, m, items)
	}
	return nil
}

func generateObject(
	g *protogen.GeneratedFile, file *protogen.File, m *protogen.Message, k *optionsv1.Kind, pkg *goPackage,
) error {
	object := g.QualifiedGoIdent(objectPath.Ident("Object"))
	kind := g.QualifiedGoIdent(objectPath.Ident("Kind"))
	name := m.GoIdent.GoName + "Kind"
	pkg.kinds = append(pkg.kinds, name)
	var list *protogen.Message
	for _, l := range file.Messages {
		if itemsOf(l) == m && kindOf(l) != nil {
			list = l
		}
	}
	g.P("// ", name, " describes the kind ", k.GetKind(), " of ", apiVersion(k), ".")
	g.P("var ", name, " = &", kind, "{")
	g.P("Group: ", strconv.Quote(k.GetGroup()), ",")
	g.P("Version: ", strconv.Quote(k.GetVersion()), ",")
	g.P("Kind: ", strconv.Quote(k.GetKind()), ",")
	g.P("Plural: ", strconv.Quote(k.GetPlural()), ",")
	g.P("Singular: ", strconv.Quote(k.GetSingular()), ",")
	names := func(field string, list []string) {
		if len(list) > 0 {
			g.P(field, ": ", fmt.Sprintf("%#v", list), ",")
		}
	}
	names("ShortNames", k.GetShortNames())
	names("Categories", k.GetCategories())
	g.P("Namespaced: ", k.GetNamespaced(), ",")
	if k.GetView() {
		g.P("View: true,")
	}
	g.P("New: func() ", object, " { return new(", m.GoIdent, ") },")
	if list != nil {
		g.P("NewList: new", list.GoIdent.GoName, ",")
	}
	g.P("}")
	g.P()
	g.P("// ObjectKind returns ", name, ".")
	g.P("func (x *", m.GoIdent, ") ObjectKind() *", kind, " { return ", name, " }")
	g.P()
	if !hasField(m, "metadata") {
		return fmt.Errorf("%s: a kind needs a field metadata", m.Desc.FullName())
	}
	g.P("// SetMetadata replaces the metadata.")
	g.P("func (x *", m.GoIdent, ") SetMetadata(m *", metaPath.Ident("ObjectMeta"), ") { x.Metadata = m }")
	g.P()
	return nil
}

func generateList(g *protogen.GeneratedFile, m, items *protogen.Message) {
	object := g.QualifiedGoIdent(objectPath.Ident("Object"))
	g.P("// Len returns the number of items.")
	g.P("func (x *", m.GoIdent, ") Len() int { return len(x.GetItems()) }")
	g.P()
	g.P("// At returns item i.")
	g.P("func (x *", m.GoIdent, ") At(i int) ", object, " { return x.Items[i] }")
	g.P()
	g.P("func new", m.GoIdent.GoName, "(meta *", metaPath.Ident("ListMeta"), ", objects []", object, ") ",
		objectPath.Ident("List"), " {")
	g.P("items := make([]*", items.GoIdent, ", len(objects))")
	g.P("for i, o := range objects {")
	g.P("items[i] = o.(*", items.GoIdent, ")")
	g.P("}")
	g.P("return &", m.GoIdent, "{Metadata: meta, Items: items}")
	g.P("}")
	g.P()
}

// itemsOf returns the message that m is a list of, nil for other messages.
func itemsOf(m *protogen.Message) *protogen.Message {
	for _, f := range m.Fields {
		if f.Desc.Name() == "items" && f.Desc.IsList() {
			return f.Message
		}
	}
	return nil
}

func hasField(m *protogen.Message, name string) bool {
	for _, f := range m.Fields {
		if string(f.Desc.Name()) == name {
			return true
		}
	}
	return false
}
