package main

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/compiler/protogen"
)

const (
	contextPath = protogen.GoImportPath("context")
	grpcPath    = protogen.GoImportPath("google.golang.org/grpc")
)

// service writes the adapter of one service.
type service struct {
	g    *protogen.GeneratedFile
	s    *protogen.Service
	pkg  *goPackage
	kind *protogen.Message // what the service is about
}

func generateService(g *protogen.GeneratedFile, s *protogen.Service, pkg *goPackage) error {
	a := service{g: g, s: s, pkg: pkg}
	for _, m := range s.Methods {
		if k := kindOf(m.Output); k.GetPlural() != "" && serviceName(k) == s.GoName {
			a.kind = m.Output
		}
	}
	if a.kind == nil {
		return nil // not about a kind, such as NodeStreams
	}
	pkg.typed = true
	name := a.name()
	g.P("// ", name, " serves the standard methods of ", s.GoName, " from a backend. The others stay unimplemented.")
	g.P("type ", name, " struct {")
	g.P("Unimplemented", s.GoName, "Server")
	g.P("// Backend serves the kind ", a.kind.GoIdent.GoName, ".")
	g.P("Backend ", objectPath.Ident("Backend"))
	g.P("}")
	g.P()
	for _, m := range s.Methods {
		if err := a.method(m); err != nil {
			return err
		}
	}
	return nil
}

func (a *service) name() string { return a.s.GoName + "Backend" }

func (a *service) method(m *protogen.Method) error {
	switch {
	case m.Desc.IsStreamingServer() && m.GoName == "Watch":
		return a.watch(m)
	case m.Desc.IsStreamingServer() || m.Desc.IsStreamingClient():
		return nil
	case m.GoName == "Get":
		a.head(m)
		a.g.P("return typed[*", a.kind.GoIdent, "](s.Backend.Get(ctx, req))")
	case m.GoName == "List" || m.GoName == "DeleteCollection":
		return a.list(m)
	case m.GoName == "Create":
		return a.create(m)
	case strings.HasPrefix(m.GoName, "Update"):
		return a.update(m, strings.ToLower(strings.TrimPrefix(m.GoName, "Update")))
	case m.GoName == "Finalize":
		return a.update(m, "finalize")
	case strings.HasPrefix(m.GoName, "Patch"):
		a.head(m)
		subresource := strings.ToLower(strings.TrimPrefix(m.GoName, "Patch"))
		a.g.P("return typed[*", a.kind.GoIdent, "](s.Backend.Patch(ctx, ", strconv.Quote(subresource), ", req))")
	case m.GoName == "Delete":
		a.delete(m)
	default:
		return nil
	}
	a.g.P("}")
	a.g.P()
	return nil
}

// head opens a unary method.
func (a *service) head(m *protogen.Method) {
	a.g.P("// ", m.GoName, " serves ", a.s.GoName, ".", m.GoName, ".")
	a.g.P("func (s ", a.name(), ") ", m.GoName, "(ctx ", contextPath.Ident("Context"),
		", req *", m.Input.GoIdent, ") (*", m.Output.GoIdent, ", error) {")
}

func (a *service) list(m *protogen.Method) error {
	if itemsOf(m.Output) != a.kind {
		return fmt.Errorf("%s: must return the list of %s", m.Desc.FullName(), a.kind.GoIdent.GoName)
	}
	g := a.g
	a.head(m)
	g.P("found, err := s.Backend.", m.GoName, "(ctx, req)")
	g.P("if err != nil {")
	g.P("return nil, err")
	g.P("}")
	g.P("items := make([]*", a.kind.GoIdent, ", len(found.Objects))")
	g.P("for i, o := range found.Objects {")
	g.P("if items[i], err = typed[*", a.kind.GoIdent, "](o, nil); err != nil {")
	g.P("return nil, err")
	g.P("}")
	g.P("}")
	g.P("return &", m.Output.GoIdent, "{Metadata: found.Meta, Items: items}, nil")
	g.P("}")
	g.P()
	return nil
}

func (a *service) create(m *protogen.Method) error {
	if err := a.write(m); err != nil {
		return err
	}
	a.g.P("return typed[*", a.kind.GoIdent, "](s.Backend.Create(ctx, ", namespace(m), ", o, ", a.options(), "))")
	a.g.P("}")
	a.g.P()
	return nil
}

func (a *service) update(m *protogen.Method, subresource string) error {
	if err := a.write(m); err != nil {
		return err
	}
	a.g.P("return typed[*", a.kind.GoIdent, "](s.Backend.Update(ctx, ", namespace(m), ", req.GetName(), ",
		strconv.Quote(subresource), ", o, ", a.options(), "))")
	a.g.P("}")
	a.g.P()
	return nil
}

// write opens a method that takes an object.
func (a *service) write(m *protogen.Method) error {
	for _, field := range []string{"object", "dryRun", "fieldManager", "fieldValidation"} {
		if !hasField(m.Input, field) {
			return fmt.Errorf("%s: the request needs a field %s", m.Desc.FullName(), field)
		}
	}
	a.head(m)
	a.g.P("o := req.GetObject()")
	a.g.P("if o == nil {")
	a.g.P("o = new(", a.kind.GoIdent, ") // validation says what is missing")
	a.g.P("}")
	return nil
}

func (a *service) options() string {
	return a.g.QualifiedGoIdent(objectPath.Ident("WriteOptions")) +
		"{DryRun: req.GetDryRun(), FieldManager: req.GetFieldManager(), FieldValidation: req.GetFieldValidation()}"
}

func namespace(m *protogen.Method) string {
	if hasField(m.Input, "namespace") {
		return "req.GetNamespace()"
	}
	return `""`
}

// delete writes Delete, which answers with the object or with a Status about it.
func (a *service) delete(m *protogen.Method) {
	g := a.g
	a.head(m)
	if m.Output == a.kind {
		g.P("return typed[*", a.kind.GoIdent, "](s.Backend.Delete(ctx, req))")
		return
	}
	g.P("o, err := s.Backend.Delete(ctx, req)")
	g.P("if err != nil {")
	g.P("return nil, err")
	g.P("}")
	g.P("var uid string")
	g.P("if o != nil {")
	g.P("uid = o.GetMetadata().GetUid()")
	g.P("}")
	g.P("return &", metaPath.Ident("Status"), "{")
	g.P("Status: \"Success\",")
	g.P("Details: &", metaPath.Ident("StatusDetails"), "{")
	g.P("Name: req.GetName(), Group: ", a.kind.GoIdent, "Kind.Group, Kind: ", a.kind.GoIdent, "Kind.Plural, Uid: uid,")
	g.P("},")
	g.P("}, nil")
}

// watch writes Watch. A batch of events takes two allocations.
func (a *service) watch(m *protogen.Method) error {
	var event *protogen.Message
	for _, f := range m.Output.Fields {
		if f.Desc.Name() == "events" && f.Desc.IsList() {
			event = f.Message
		}
	}
	if event == nil || !hasField(event, "type") || !hasField(event, "object") || !hasField(event, "status") {
		return fmt.Errorf("%s: must stream messages with events of type, object and status", m.Desc.FullName())
	}
	g := a.g
	stream := objectPath.Ident("Event")
	g.P("// Watch serves ", a.s.GoName, ".Watch.")
	g.P("func (s ", a.name(), ") Watch(req *", m.Input.GoIdent, ", stream ",
		grpcPath.Ident("ServerStreamingServer"), "[", m.Output.GoIdent, "]) error {")
	g.P("accept := func() error { return stream.SendHeader(nil) }")
	g.P("return s.Backend.Watch(stream.Context(), req, accept, func(batch []", stream, ") error {")
	g.P("block := make([]", event.GoIdent, ", len(batch))")
	g.P("events := make([]*", event.GoIdent, ", len(batch))")
	g.P("for i, e := range batch {")
	g.P("event := &block[i]")
	g.P("event.Type, event.Status = string(e.Type), e.Status")
	g.P("if e.Object != nil {")
	g.P("o, err := typed[*", a.kind.GoIdent, "](e.Object, nil)")
	g.P("if err != nil {")
	g.P("return err")
	g.P("}")
	g.P("event.Object = o")
	g.P("}")
	g.P("events[i] = event")
	g.P("}")
	g.P("return stream.Send(&", m.Output.GoIdent, "{Events: events})")
	g.P("})")
	g.P("}")
	g.P()
	return nil
}
