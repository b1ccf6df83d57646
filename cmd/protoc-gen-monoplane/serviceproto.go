package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/compiler/protogen"

	optionsv1 "monoplane.dev/api/options/v1"
)

// serviceProto makes the .proto file of a kind's service.
type serviceProto struct {
	plugin  *protogen.Plugin
	kind    served
	imports map[string]bool
	rpcs    []rpc
	records []record
}

// rpc is a method.
type rpc struct {
	comment, name, in, out string
	// bindings are its paths, the first one first.
	bindings []binding
}

// binding is a path of a method. Body is the field of the request that the HTTP body fills.
type binding struct {
	method, path, body string
}

// record is a message.
type record struct {
	comment, name string
	// fields are numbered from 1 on; one without a declaration leaves its number out.
	fields []recordField
}

type recordField struct {
	comment, declaration string
}

const (
	metaPackage   = "monoplane.meta.v1."
	requestProto  = "monoplane/meta/v1/request.proto"
	statusProto   = "monoplane/meta/v1/status.proto"
	httpBodyProto = "google/api/httpbody.proto"
	streamProto   = "monoplane/core/v1/stream.proto"
	proxyProto    = "monoplane/core/v1/proxy.proto"
)

const sharedCodes = "Codes that any method can return: Unauthenticated and PermissionDenied (identity), " +
	"InvalidArgument " +
	"(malformed request; do not retry), Unavailable (server starting or stopping; retry), DeadlineExceeded, " +
	"ResourceExhausted (object or request too large, or too many requests)."

// generateServiceProtos writes the service of every kind.
func generateServiceProtos(p *protogen.Plugin) error {
	kinds, err := servedKinds(p)
	if err != nil {
		return err
	}
	for _, k := range kinds {
		s := &serviceProto{plugin: p, kind: k, imports: map[string]bool{
			"google/api/annotations.proto": true, k.file.Desc.Path(): true,
		}}
		if err := s.collect(); err != nil {
			return fmt.Errorf("%s: %w", k.message.Desc.FullName(), err)
		}
		g := p.NewGeneratedFile(strings.TrimSuffix(k.file.Desc.Path(), ".proto")+"_service.proto", "")
		if _, err := g.Write([]byte(s.text())); err != nil {
			return err
		}
	}
	return nil
}

// collect finds out what the service has.
func (s *serviceProto) collect() error {
	k := s.kind
	name := k.GetKind()
	create, update := "Create"+name+"Request", "Update"+name+"Request"
	updated := k.can("update")
	reads := []binding{s.item("get", "", "")}
	excepted := ""
	if k.hasStatus() {
		excepted = ", its status excepted"
	}
	var parts, actions []*optionsv1.Subresource
	var shapes []*optionsv1.Subresource
	for _, sub := range k.GetSubresources() {
		switch {
		case sub.GetMethod() != "":
			actions = append(actions, sub)
		case sub.GetBody() != "":
			shapes = append(shapes, sub)
		default:
			parts = append(parts, sub)
			reads = append(reads, s.item("get", sub.GetName(), ""))
		}
		updated = updated || sub.GetBody() == "" && sub.GetOptions() == ""
	}
	s.add("get", rpc{"Get returns one object. Codes: NotFound.", "Get", metaPackage + "GetRequest", name, reads})
	s.add("list",
		rpc{"List returns a consistent snapshot. Codes: OutOfRange with reason Expired (the revision was compacted; " +
			"list again from the start).", "List", metaPackage + "ListRequest", name + "List", s.collections("get", "")})
	s.add("watch",
		rpc{"Watch streams changes in batches, in order, without loss. Codes: OutOfRange with reason Expired (list, " +
			"then watch again), Aborted (the client was too slow; resume from the last revision it saw).",
			"Watch", metaPackage + "WatchRequest", "stream " + name + "Events", s.collections("get", "/watch")})
	codes := "AlreadyExists (the name is taken), InvalidArgument with reason Invalid (every bad field is listed)"
	if k.GetNamespaced() {
		codes += ", NotFound or PermissionDenied (namespace missing or terminating)"
	}
	s.add("create", rpc{"Create stores a new object. Codes: " + codes + s.codes("Create") + ".",
		"Create", create, name, []binding{s.collection("post", "", "object")}})
	s.add("update", rpc{"Update replaces an object" + excepted +
		". Codes: NotFound, Aborted with reason Conflict (stale " +
		"resourceVersion; read again), InvalidArgument with reason Invalid" + s.codes("Update") + ".",
		"Update", update, name, []binding{s.item("put", "", "object")}})
	s.add("patch", rpc{"Patch changes an object" + excepted + ", by a patch document. Codes: as Update.",
		"Patch", metaPackage + "PatchRequest", name, []binding{s.item("patch", "", "patch")}})
	for _, sub := range parts {
		s.part(sub, update)
	}
	s.deletions()
	s.requests(create, update, updated)
	for _, sub := range shapes {
		if err := s.shape(sub); err != nil {
			return fmt.Errorf("subresource %s: %w", sub.GetName(), err)
		}
	}
	for _, sub := range actions {
		if err := s.action(sub, update); err != nil {
			return fmt.Errorf("subresource %s: %w", sub.GetName(), err)
		}
	}
	return nil
}

// part adds the methods of a part of the object.
func (s *serviceProto) part(sub *optionsv1.Subresource, update string) {
	suffix, spec := titleOf(sub), ""
	if sub.GetSpec() != "" {
		spec = " (spec: " + sub.GetSpec() + ")"
	}
	s.rpcs = append(s.rpcs, rpc{"Update" + suffix + " replaces " + sub.GetWrites() + " and nothing else" + spec +
		". Codes: as Update.",
		"Update" + suffix, update, s.kind.GetKind(), []binding{s.item("put", sub.GetName(), "object")}})
	s.rpcs = append(s.rpcs, rpc{"Patch" + suffix + " changes " + sub.GetWrites() +
		", and nothing else, by a patch document. Codes: as Update.",
		"Patch" + suffix, metaPackage + "PatchRequest", s.kind.GetKind(),
		[]binding{s.item("patch", sub.GetName(), "patch")}})
}

// titleOf is how a subresource is written in methods.
func titleOf(sub *optionsv1.Subresource) string {
	return cmp.Or(sub.GetTitle(), strings.ToUpper(sub.GetName()[:1])+sub.GetName()[1:])
}

// shape adds the methods of a part of the object that is read and written as a message of its own, and the request of
// those that replace it.
func (s *serviceProto) shape(sub *optionsv1.Subresource) error {
	body := messageOf(s.plugin, s.kind.file, sub.GetBody())
	if body == nil {
		return fmt.Errorf("there is no message %s", sub.GetBody())
	}
	suffix, what := titleOf(sub), sub.GetBody()
	request := "Update" + s.kind.GetKind() + suffix + "Request"
	s.imports[body.Desc.ParentFile().Path()] = true
	s.imports[requestProto] = true
	s.rpcs = append(s.rpcs,
		rpc{"Get" + suffix + " returns " + sub.GetWrites() + ". Codes: NotFound.",
			"Get" + suffix, metaPackage + "GetRequest", what, []binding{s.item("get", sub.GetName(), "")}},
		rpc{"Update" + suffix + " replaces " + sub.GetWrites() + " and nothing else. Codes: as Update.",
			"Update" + suffix, request, what, []binding{s.item("put", sub.GetName(), "object")}},
		rpc{"Patch" + suffix + " changes " + sub.GetWrites() + ", and nothing else, by a patch document. Codes: as Update.",
			"Patch" + suffix, metaPackage + "PatchRequest", what, []binding{s.item("patch", sub.GetName(), "patch")}})
	s.records = append(s.records, record{request + " replaces " + sub.GetWrites() + " of one object.", request,
		append([]recordField{
			s.namespace("Namespace of the object; empty takes that in the " + sub.GetName() + "."),
			{"Name of the object; empty takes that in the " + sub.GetName() + ".", "string name"},
			{"What is wanted; with metadata.resourceVersion the write is a compare-and-swap.", what + " object"},
		}, writeFields...)})
	return nil
}

func (s *serviceProto) deletions() {
	k := s.kind
	answer, said := k.GetKind(), " The answer is the object as the deletion left it."
	if !k.GetDeleteReturnsObject() {
		answer, said = metaPackage+"Status", ""
	}
	s.add("delete",
		rpc{"Delete removes an object, or marks it when finalizers hold it. Codes: NotFound, Aborted with reason " +
			"Conflict (a precondition does not hold)" + s.codes("Delete") + "." + said,
			"Delete", metaPackage + "DeleteRequest", answer, []binding{s.item("delete", "", "options")}})
	s.add("deletecollection", rpc{
		"DeleteCollection deletes every selected object, each as Delete does, and returns them.",
		"DeleteCollection", metaPackage + "DeleteCollectionRequest", k.GetKind() + "List",
		[]binding{s.collection("delete", "", "options")}})
}

// action adds the method of an action, or of a part that is only replaced, and its request.
func (s *serviceProto) action(sub *optionsv1.Subresource, update string) error {
	k := s.kind
	text := s.doc(sub.GetMethod()).GetText()
	if text == "" {
		return fmt.Errorf("docs must say what method %s does", sub.GetMethod())
	}
	request := sub.GetMethod() + k.GetKind() + "Request"
	switch {
	case sub.GetBody() != "":
		body := messageOf(s.plugin, k.file, sub.GetBody())
		if body == nil {
			return fmt.Errorf("there is no message %s", sub.GetBody())
		}
		paths := []binding{s.item("post", sub.GetName(), "object")}
		if own := kindOf(body); own.GetPlural() != "" && own.GetGroup() == k.GetGroup() {
			paths = append(paths, binding{"post", s.prefix("") + s.scope() + "/" + own.GetPlural(), "object"})
		}
		answer := sub.GetBody()
		if !sub.GetReturnsBody() {
			answer, s.imports[statusProto] = metaPackage+"Status", true
		}
		s.imports[body.Desc.ParentFile().Path()] = true
		s.rpcs = append(s.rpcs, rpc{text, sub.GetMethod(), request, answer, paths})
		what := strings.ToLower(string(body.Desc.Name()))
		s.records = append(s.records, record{summaryOf(body, request), request, append([]recordField{
			s.namespace("Namespace of the " + k.GetSingular() + "."),
			{"Name of the " + k.GetSingular() + "; empty takes it from the " + what + "'s metadata.", "string name"},
			{"The " + what + ".", sub.GetBody() + " object"},
		}, writeFields...)})
	case sub.GetConverses():
		return s.conversation(sub, text, request)
	case sub.GetProxies():
		return s.proxy(sub, text, request)
	case sub.GetOptions() != "":
		options := messageOf(s.plugin, k.file, sub.GetOptions())
		if options == nil {
			return fmt.Errorf("there is no message %s", sub.GetOptions())
		}
		s.imports[httpBodyProto] = true
		paths := []binding{s.item("get", sub.GetName(), "")}
		if rest := sub.GetRest(); rest != "" {
			if !slices.ContainsFunc(options.Fields, func(f *protogen.Field) bool { return string(f.Desc.Name()) == rest }) {
				return fmt.Errorf("there is no field %s in %s", rest, sub.GetOptions())
			}
			paths = append(paths, s.item("get", sub.GetName()+"/{"+rest+"=**}", ""))
		}
		s.rpcs = append(s.rpcs, rpc{text, sub.GetMethod(), request, "stream google.api.HttpBody", paths})
		fields, err := optionFields(options, false)
		if err != nil {
			return err
		}
		s.records = append(s.records, record{
			summaryOf(options, request) + " The fields are those of " + sub.GetOptions() + ".", request, append([]recordField{
				s.namespace("Namespace of the " + k.GetSingular() + "."), {"Name of the " + k.GetSingular() + ".", "string name"},
			}, fields...),
		})
	default:
		s.rpcs = append(s.rpcs, rpc{text, sub.GetMethod(), update, k.GetKind(),
			[]binding{s.item("put", sub.GetName(), "object")}})
	}
	return nil
}

// conversation adds a method whose streams go both ways, and its request.
func (s *serviceProto) conversation(sub *optionsv1.Subresource, text, request string) error {
	k := s.kind
	options := messageOf(s.plugin, k.file, sub.GetOptions())
	if options == nil {
		return fmt.Errorf("there is no message %s", sub.GetOptions())
	}
	fields, err := optionFields(options, true)
	if err != nil {
		return err
	}
	s.imports[streamProto] = true
	s.rpcs = append(s.rpcs, rpc{text, sub.GetMethod(), "stream " + request, "stream StreamOutput",
		[]binding{s.item("get", sub.GetName(), ""), s.item("post", sub.GetName(), "")}})
	fields = append([]recordField{
		s.namespace("Namespace of the " + k.GetSingular() + "."), {"Name of the " + k.GetSingular() + ".", "string name"},
	}, fields...)
	s.records = append(s.records, record{
		summaryOf(options, request) + " Its fields, besides the input, are those of " + sub.GetOptions() +
			", and count in the first message only.",
		request, append(fields, recordField{"What goes in; any message may have some.", "StreamInput input"}),
	})
	return nil
}

// proxy adds a method that passes HTTP requests of all methods on, and its request.
func (s *serviceProto) proxy(sub *optionsv1.Subresource, text, request string) error {
	k, rest := s.kind, sub.GetRest()
	options := messageOf(s.plugin, k.file, sub.GetOptions())
	if options == nil || len(options.Fields) != 1 || string(options.Fields[0].Desc.Name()) != rest {
		return fmt.Errorf("there is no message %s that has the field %q and no other", sub.GetOptions(), rest)
	}
	var paths []binding
	for _, method := range []string{"get", "put", "post", "delete", "patch"} {
		paths = append(paths, s.item(method, sub.GetName(), ""), s.item(method, sub.GetName()+"/{"+rest+"=**}", ""))
	}
	s.imports[proxyProto] = true
	s.rpcs = append(s.rpcs, rpc{text, sub.GetMethod(), "stream " + request, "stream ProxyOutput", paths})
	fields, err := optionFields(options, false)
	if err != nil {
		return err
	}
	fields = append([]recordField{
		s.namespace("Namespace of the " + k.GetSingular() + "."), {"Name of the " + k.GetSingular() + ".", "string name"},
	}, fields...)
	s.records = append(s.records, record{
		summaryOf(options, request) + " Its fields, besides the input, are those of " + sub.GetOptions() +
			", and count in the first message only.",
		request, append(fields, recordField{"A piece of the request; every message has one.", "ProxyInput input"}),
	})
	return nil
}

// optionFields returns the fields of a message as a query can set them, some of them several times if lists is set.
func optionFields(options *protogen.Message, lists bool) ([]recordField, error) {
	var fields []recordField
	for i, f := range options.Fields {
		if int(f.Desc.Number()) != i+1 {
			return nil, fmt.Errorf("%s: fields must be numbered from 1 on", options.Desc.FullName())
		}
		declaration := f.Desc.Kind().String() + " " + string(f.Desc.Name())
		switch {
		case f.Message != nil && isTime(f.Message):
			declaration = "string " + string(f.Desc.Name())
		case f.Message != nil || f.Enum != nil || f.Desc.IsList() && !lists:
			return nil, fmt.Errorf("%s: a query cannot set it", f.Desc.FullName())
		case f.Desc.IsList():
			declaration = "repeated " + declaration
		}
		if f.Desc.HasOptionalKeyword() {
			declaration = "optional " + declaration
		}
		fields = append(fields, recordField{joined(f.Comments), declaration})
	}
	return fields, nil
}

var writeFields = []recordField{
	{`"All" validates and admits but stores nothing.`, "repeated string dryRun"},
	{"Name of the program that writes.", "string fieldManager"},
	{`What to do with unknown and duplicate JSON fields: "Strict", "Warn" (default) or "Ignore".`,
		"string fieldValidation"},
}

// requests adds the requests and events of the standard methods.
func (s *serviceProto) requests(create, update string, updated bool) {
	k := s.kind
	own := s.namespace("Namespace of the object; empty takes the object's own.")
	switch {
	case len(k.GetVerbs()) == 1 && k.can("create"): // a review: it is answered and forgotten
		s.records = append(s.records, record{create + " asks one question.", create, []recordField{
			own,
			{"The question.", k.GetKind() + " object"},
			{`"All" changes nothing: nothing is stored in any case.`, "repeated string dryRun"},
			{"Name of the program that asks.", "string fieldManager"},
			writeFields[2],
		}})
	case k.can("create"):
		s.records = append(s.records, record{create + " creates one object.", create, append([]recordField{
			own, {"The object; metadata.name or metadata.generateName is required.", k.GetKind() + " object"},
		}, writeFields...)})
	}
	if updated {
		s.records = append(s.records, record{update + " replaces one object.", update, append([]recordField{
			own,
			{"Name of the object; empty takes the object's own.", "string name"},
			{"The object; with metadata.resourceVersion the write is a compare-and-swap.", k.GetKind() + " object"},
		}, writeFields...)})
	}
	if k.can("watch") {
		event, batch := k.GetKind()+"Event", k.GetKind()+"Events"
		s.imports[statusProto] = true
		s.records = append(s.records, record{event + " is one change.", event, []recordField{
			{`"ADDED", "MODIFIED", "DELETED", "BOOKMARK" or "ERROR".`, "string type"},
			{"The object after the change, or as it was last when deleted. In a BOOKMARK only its resourceVersion and " +
				"annotations are set.", k.GetKind() + " object"},
			{"With ERROR: what went wrong. The stream ends after it.", metaPackage + "Status status"},
		}}, record{batch + " is a batch of changes, oldest first.", batch, []recordField{
			{"At least one change.", "repeated " + event + " events"},
		}})
	}
}

// add adds a method, if the kind has its verb, with what is special about its comment.
func (s *serviceProto) add(verb string, r rpc) {
	if !s.kind.can(verb) {
		return
	}
	if text := s.doc(r.name).GetText(); text != "" {
		r.comment = text
	}
	if strings.HasPrefix(r.in, metaPackage) {
		s.imports[requestProto] = true
	}
	if r.out == metaPackage+"Status" {
		s.imports[statusProto] = true
	}
	s.rpcs = append(s.rpcs, r)
}

// doc returns what is special about the comment of a method.
func (s *serviceProto) doc(method string) *optionsv1.MethodDoc {
	for _, d := range s.kind.GetDocs() {
		if d.GetMethod() == method {
			return d
		}
	}
	return nil
}

func (s *serviceProto) codes(method string) string {
	if codes := s.doc(method).GetCodes(); codes != "" {
		return ", " + codes
	}
	return ""
}

func (s *serviceProto) prefix(watch string) string {
	if s.kind.GetGroup() == "" {
		return "/api/" + s.kind.GetVersion() + watch
	}
	return "/apis/" + s.kind.GetGroup() + "/" + s.kind.GetVersion() + watch
}

func (s *serviceProto) scope() string {
	if s.kind.GetNamespaced() {
		return "/namespaces/{namespace}"
	}
	return ""
}

func (s *serviceProto) collection(method, watch, body string) binding {
	return binding{method, s.prefix(watch) + s.scope() + "/" + s.kind.GetPlural(), body}
}

// collections are the paths to the objects of a namespace and to those of all.
func (s *serviceProto) collections(method, watch string) []binding {
	paths := []binding{s.collection(method, watch, "")}
	if s.kind.GetNamespaced() {
		paths = append(paths, binding{method, s.prefix(watch) + "/" + s.kind.GetPlural(), ""})
	}
	return paths
}

func (s *serviceProto) item(method, subresource, body string) binding {
	b := s.collection(method, "", body)
	b.path += "/{name}"
	if subresource != "" {
		b.path += "/" + subresource
	}
	return b
}

// namespace returns the first field of requests. Objects without a namespace leave its number free.
func (s *serviceProto) namespace(comment string) recordField {
	if s.kind.GetNamespaced() || s.kind.GetNamespaceInRequests() {
		return recordField{comment, "string namespace"}
	}
	return recordField{}
}

// summaryOf returns the comment of m as one about name.
func summaryOf(m *protogen.Message, name string) string {
	return name + strings.TrimPrefix(joined(m.Comments), string(m.Desc.Name()))
}

func joined(c protogen.CommentSet) string {
	return strings.Join(strings.Fields(string(c.Leading)), " ")
}

// text returns the file.
func (s *serviceProto) text() string {
	var b strings.Builder
	k := s.kind
	does := k.GetDoes()
	if does == "" {
		does = "reads and writes objects of kind " + k.GetKind()
	}
	b.WriteString("// Code generated by protoc-gen-monoplane from " + k.file.Desc.Path() +
		". DO NOT EDIT.\n\nsyntax = \"proto3\";\n\n")
	fmt.Fprintf(&b, "package %s;\n\n", k.file.Desc.Package())
	var imports []string
	for path := range s.imports {
		imports = append(imports, path)
	}
	slices.Sort(imports)
	for _, path := range imports {
		fmt.Fprintf(&b, "import %q;\n", path)
	}
	fmt.Fprintf(&b, "\noption go_package = \"%s/rpc;%srpc\";\n\n", string(k.file.GoImportPath), k.file.GoPackageName)
	comment(&b, "", k.service+" "+does+". Every refusal carries a Kubernetes Status in its details.")
	b.WriteString("//\n")
	comment(&b, "", sharedCodes)
	fmt.Fprintf(&b, "service %s {\n", k.service)
	for i, r := range s.rpcs {
		if i > 0 {
			b.WriteString("\n")
		}
		r.text(&b)
	}
	b.WriteString("}\n")
	for _, r := range s.records {
		b.WriteString("\n")
		r.text(&b)
	}
	return b.String()
}

func (r rpc) text(b *strings.Builder) {
	comment(b, "  ", r.comment)
	fmt.Fprintf(b, "  rpc %s(%s) returns (%s) {\n    option (google.api.http) = {\n", r.name, r.in, r.out)
	for i, p := range r.bindings {
		switch {
		case i == 0:
			p.text(b, "      ")
		case p.body == "":
			fmt.Fprintf(b, "      additional_bindings {%s: %q}\n", p.method, p.path)
		default:
			b.WriteString("      additional_bindings {\n")
			p.text(b, "        ")
			b.WriteString("      }\n")
		}
	}
	b.WriteString("    };\n  }\n")
}

func (p binding) text(b *strings.Builder, indent string) {
	fmt.Fprintf(b, "%s%s: %q\n", indent, p.method, p.path)
	if p.body != "" {
		fmt.Fprintf(b, "%sbody: %q\n", indent, p.body)
	}
}

func (r record) text(b *strings.Builder) {
	comment(b, "", r.comment)
	fmt.Fprintf(b, "message %s {\n", r.name)
	for i, f := range r.fields {
		if f.declaration == "" {
			fmt.Fprintf(b, "  reserved %d;\n", i+1)
			continue
		}
		comment(b, "  ", f.comment)
		fmt.Fprintf(b, "  %s = %d;\n", f.declaration, i+1)
	}
	b.WriteString("}\n")
}

// comment writes a comment whose lines end before column 120.
func comment(b *strings.Builder, indent, text string) {
	line := indent + "//"
	for _, word := range strings.Fields(text) {
		if len(line)+1+len(word) >= 120 {
			b.WriteString(line + "\n")
			line = indent + "//"
		}
		line += " " + word
	}
	b.WriteString(line + "\n")
}
