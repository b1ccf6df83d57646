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
	kind *protogen.Message // what the service is about
}

func generateService(g *protogen.GeneratedFile, s *protogen.Service) error {
	a := service{g: g, s: s}
	for _, m := range s.Methods {
		if k := kindOf(m.Output); k.GetPlural() != "" && serviceName(k) == s.GoName {
			a.kind = m.Output
		}
	}
	if a.kind == nil {
		return nil // not about a kind, such as NodeStreams
	}
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
	part := func(prefix string) string {
		return strconv.Quote(strings.ToLower(strings.TrimPrefix(m.GoName, prefix)))
	}
	switch {
	case m.Desc.IsStreamingServer() && m.GoName == "Watch":
		return a.watch(m)
	case m.Desc.IsStreamingServer() || m.Desc.IsStreamingClient():
		return nil
	case m.GoName == "Get":
		a.unary(m, a.typed("s.Backend.Get(ctx, req)"))
	case m.GoName == "List" || m.GoName == "DeleteCollection":
		return a.list(m)
	case m.GoName == "Create":
		return a.write(m, a.ident("Create"), "(ctx, s.Backend, ", a.description(), ", req)")
	case m.GoName == "Finalize":
		return a.write(m, a.ident("Update"), "(ctx, s.Backend, ", a.description(), `, "finalize", req)`)
	case strings.HasPrefix(m.GoName, "Get"):
		a.unary(m, a.typedAs(m.Output, "s.Backend.GetPart(ctx, "+part("Get")+", req)"))
	case strings.HasPrefix(m.GoName, "Update"):
		return a.write(m, a.ident("Update"), "(ctx, s.Backend, ", a.describe(m.Output), ", "+part("Update")+", req)")
	case strings.HasPrefix(m.GoName, "Patch"):
		a.unary(m, a.typedAs(m.Output, "s.Backend.Patch(ctx, "+part("Patch")+", req)"))
	case m.GoName == "Delete" && m.Output == a.kind:
		a.unary(m, a.typed("s.Backend.Delete(ctx, req)"))
	case m.GoName == "Delete":
		a.unary(m, "o, err := s.Backend.Delete(ctx, req)", "return "+a.ident("Deleted")+"("+a.description()+", req, o, err)")
	}
	return nil
}

// ident returns a name of package object/service.
func (a *service) ident(name string) string { return a.g.QualifiedGoIdent(servicePath.Ident(name)) }

// description is the variable that describes the kind.
func (a *service) description() string { return a.describe(a.kind) }

// describe is the variable that describes the kind of a message.
func (a *service) describe(m *protogen.Message) string {
	return a.g.QualifiedGoIdent(m.GoIdent) + "Kind"
}

func (a *service) typed(call string) string { return a.typedAs(a.kind, call) }

func (a *service) typedAs(m *protogen.Message, call string) string {
	return "return " + a.ident("Typed") + "[*" + a.g.QualifiedGoIdent(m.GoIdent) + "](" + call + ")"
}

// unary writes a unary method.
func (a *service) unary(m *protogen.Method, body ...string) {
	a.g.P("// ", m.GoName, " serves ", a.s.GoName, ".", m.GoName, ".")
	a.g.P("func (s ", a.name(), ") ", m.GoName, "(ctx ", contextPath.Ident("Context"),
		", req *", m.Input.GoIdent, ") (*", m.Output.GoIdent, ", error) {")
	for _, line := range body {
		a.g.P(line)
	}
	a.g.P("}")
	a.g.P()
}

func (a *service) list(m *protogen.Method) error {
	if itemsOf(m.Output) != a.kind {
		return fmt.Errorf("%s: must return the list of %s", m.Desc.FullName(), a.kind.GoIdent.GoName)
	}
	a.unary(m,
		"meta, items, err := "+a.ident("Listed")+"[*"+a.g.QualifiedGoIdent(
			a.kind.GoIdent)+"](s.Backend."+m.GoName+"(ctx, req))",
		"if err != nil {", "return nil, err", "}",
		"return &"+a.g.QualifiedGoIdent(m.Output.GoIdent)+"{Metadata: meta, Items: items}, nil")
	return nil
}

// write writes a method that takes an object.
func (a *service) write(m *protogen.Method, call ...string) error {
	for _, field := range []string{"object", "dryRun", "fieldManager", "fieldValidation"} {
		if !hasField(m.Input, field) {
			return fmt.Errorf("%s: the request needs a field %s", m.Desc.FullName(), field)
		}
	}
	a.unary(m, "return "+strings.Join(call, ""))
	return nil
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
	g.P("o, err := ", servicePath.Ident("Typed"), "[*", a.kind.GoIdent, "](e.Object, nil)")
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
