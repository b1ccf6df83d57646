package rest

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"monoplane.dev/apiserver/metering"
	"monoplane.dev/object"
	"monoplane.dev/object/service"

	corev1 "monoplane.dev/api/core/v1"
)

// route is one REST binding of a gRPC method: a google.api.http rule.
type route struct {
	// service is what the method belongs to, rpc the method's full name.
	service *service.Service
	rpc     string
	// verb is the Kubernetes verb, such as "get" or "deletecollection".
	verb string
	// method and template are those of the rule.
	method, template string
	// variables are what the path's variables fill of the request, in order.
	variables []protoreflect.FieldDescriptor
	// whole is the variable that takes the rest of the path, and the query with it; nil for none.
	whole protoreflect.FieldDescriptor
	// prefix is "/api/v1" or "/apis/GROUP/VERSION".
	prefix string
	// resource and subresource name what the path ends in, such as "pods" and "log".
	resource, subresource string
	namespaced            bool
	// input and output are the messages of the method.
	input, output protoreflect.MessageType
	// body is the field of the request that the HTTP body fills, nil for none; object its message, nil for a patch, which
	// is bytes of the type that patchType takes.
	body, patchType protoreflect.FieldDescriptor
	object          protoreflect.MessageType
	// manager is the field of the request that names the program that writes; nil for none.
	manager protoreflect.FieldDescriptor
	// stream describes an answer that is a stream, nil for others; text is set when it is one of text: plain text, or, if
	// typed is set too, what its first message says, for which the header waits. That is where a path says what is asked
	// for.
	stream      *grpc.StreamDesc
	text, typed bool
	// conversation is the field that the input fills of a method whose streams go both ways, for which connections are
	// upgraded; nil for others.
	conversation protoreflect.FieldDescriptor
	// options is the kind that Kubernetes gives the path of a conversation, such as PodExecOptions; nil for others.
	options *object.Kind
	// proxies says that what the streams carry are HTTP requests of any method, and their answers.
	proxies bool
	// query are the parameters that the query may set.
	query map[string]parameter
	// watch is the route that answers this one's requests with ?watch=true; nil for none.
	watch *route
	// operation counts requests, apply those patches that are applied.
	operation, apply *metering.Operation
}

// meter makes what counts requests, with the labels of Kubernetes.
func (r *route) meter(m *metering.Meter) {
	scope := metering.OfCluster
	switch {
	case r.named() || r.method == http.MethodPost:
		scope = metering.OfResource
	case r.namespaced:
		scope = metering.OfNamespace
	}
	group, version := r.groupVersion()
	l := metering.Labels{Verb: metering.Verb(r.verb, r.stream != nil && r.verb != "watch"), Group: group,
		Version: version, Resource: r.resource, Subresource: r.subresource, Scope: scope}
	r.operation = m.Operation(l, r.stream != nil)
	l.Verb = "APPLY"
	r.apply = m.Operation(l, false)
}

// routesOf makes the routes of a service: one for each rule of each of its methods. The rules are in the descriptor,
// while servers register and answer what is in grpc.ServiceDesc: a method that only one of the two knows is refused,
// by its name.
func routesOf(s *service.Service) ([]*route, error) {
	streams := make(map[string]*grpc.StreamDesc, len(s.Desc.Streams))
	for i := range s.Desc.Streams {
		streams[s.Desc.Streams[i].StreamName] = &s.Desc.Streams[i]
	}
	methods := s.Descriptor.Methods()
	for _, name := range s.Methods() {
		if methods.ByName(protoreflect.Name(name)) == nil {
			return nil, fmt.Errorf("%s.%s is served, but its .proto has no such method", s.Desc.ServiceName, name)
		}
	}
	var routes []*route
	for i := range methods.Len() {
		m := methods.Get(i)
		if !slices.Contains(s.Methods(), string(m.Name())) {
			return nil, fmt.Errorf("%s is in the .proto, but is not served", m.FullName())
		}
		stream := streams[string(m.Name())]
		if (stream != nil) != m.IsStreamingServer() || m.IsStreamingClient() && !m.IsStreamingServer() ||
			stream != nil && stream.ClientStreams != m.IsStreamingClient() {
			return nil, fmt.Errorf("%s: only its answer may be a stream, or what is asked as well, and it has to be so on "+
				"both sides", m.FullName())
		}
		rule, ok := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
		if !ok || rule == nil {
			return nil, fmt.Errorf("%s has no google.api.http rule", m.FullName())
		}
		bound := len(routes)
		for _, b := range append([]*annotations.HttpRule{rule}, rule.GetAdditionalBindings()...) {
			r := &route{service: s, rpc: "/" + s.Desc.ServiceName + "/" + string(m.Name()), stream: stream}
			if err := r.bind(m, b); err != nil {
				return nil, fmt.Errorf("%s: %w", m.FullName(), err)
			}
			routes = append(routes, r)
		}
		if slices.ContainsFunc(routes[bound:], func(r *route) bool { return r.whole != nil }) {
			for _, r := range routes[bound:] {
				r.typed = r.text
			}
		}
	}
	return routes, nil
}

// bind reads a rule of the method m.
func (r *route) bind(m protoreflect.MethodDescriptor, rule *annotations.HttpRule) (err error) {
	switch p := rule.GetPattern().(type) {
	case *annotations.HttpRule_Get:
		r.method, r.template = http.MethodGet, p.Get
	case *annotations.HttpRule_Post:
		r.method, r.template = http.MethodPost, p.Post
	case *annotations.HttpRule_Put:
		r.method, r.template = http.MethodPut, p.Put
	case *annotations.HttpRule_Patch:
		r.method, r.template = http.MethodPatch, p.Patch
	case *annotations.HttpRule_Delete:
		r.method, r.template = http.MethodDelete, p.Delete
	default:
		return errors.New("an HTTP binding of an unknown method")
	}
	if r.input, err = messageType(m.Input()); err != nil {
		return err
	}
	if r.output, err = messageType(m.Output()); err != nil {
		return err
	}
	r.manager = r.input.Descriptor().Fields().ByName("fieldManager")
	if err := r.parseTemplate(); err != nil {
		return err
	}
	if err := r.bindBody(rule.GetBody()); err != nil {
		return err
	}
	if m.IsStreamingClient() {
		if r.conversation, err = r.field("input"); err != nil {
			return err
		}
		own := r.service.Kind
		r.options = &object.Kind{
			Group: own.Group, Version: own.Version, Kind: own.Kind + string(m.Name()) + "Options",
		}
		r.proxies = r.conversation.Message().FullName() == (*corev1.ProxyInput)(nil).ProtoReflect().Descriptor().FullName()
	}
	r.verb = r.verbOf(strings.Contains(r.template, "/watch/"))
	r.text = r.stream != nil && r.verb != "watch" && r.conversation == nil
	r.query = parametersOf(r)
	return nil
}

// bindBody finds the field that the HTTP body fills.
func (r *route) bindBody(name string) (err error) {
	if name == "" {
		return nil
	}
	if r.body, err = r.field(name); err != nil {
		return err
	}
	if r.method == http.MethodPatch {
		r.patchType, err = r.field("patchType")
		return err
	}
	if r.body.Message() == nil {
		return fmt.Errorf("the body %s is no message", name)
	}
	r.object, err = messageType(r.body.Message())
	return err
}

// field returns a field of the request.
func (r *route) field(name string) (protoreflect.FieldDescriptor, error) {
	f := r.input.Descriptor().Fields().ByTextName(name)
	if f == nil {
		return nil, fmt.Errorf("%s has no field %s", r.input.Descriptor().FullName(), name)
	}
	return f, nil
}

func messageType(d protoreflect.MessageDescriptor) (protoreflect.MessageType, error) {
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		return nil, fmt.Errorf("the message %s is not registered: %w", d.FullName(), err)
	}
	return t, nil
}

// parseTemplate finds the group, the resource and the variables in a path such as
// "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale".
func (r *route) parseTemplate() error {
	segments := strings.Split(strings.TrimPrefix(r.template, "/"), "/")
	n := 2
	if segments[0] == "apis" {
		n = 3
	}
	if len(segments) <= n {
		return fmt.Errorf("path %s is too short", r.template)
	}
	r.prefix = "/" + strings.Join(segments[:n], "/")
	rest := segments[n:]
	if rest[0] == "watch" {
		rest = rest[1:]
	}
	if len(rest) > 2 && rest[0] == "namespaces" && rest[1] == "{namespace}" {
		r.namespaced = true
		rest = rest[2:]
	}
	r.resource = rest[0]
	if len(rest) > 1 {
		if rest[1] != "{name}" {
			return fmt.Errorf("path %s: expected {name}, found %s", r.template, rest[1])
		}
	}
	if len(rest) > 2 {
		r.subresource = rest[2]
	}
	if len(rest) > 3 && !isRest(rest[3]) || len(rest) > 4 {
		return fmt.Errorf("path %s has too many segments", r.template)
	}
	for _, segment := range segments {
		if !isVariable(segment) {
			continue
		}
		f, err := r.field(variableOf(segment))
		if err != nil {
			return err
		}
		r.variables = append(r.variables, f)
		if isRest(segment) {
			r.whole = f
		}
	}
	return nil
}

func (r *route) named() bool {
	return slices.ContainsFunc(r.variables, func(f protoreflect.FieldDescriptor) bool { return f.Name() == "name" })
}

func (r *route) verbOf(watch bool) string {
	switch r.method {
	case http.MethodGet:
		switch {
		case watch:
			return "watch"
		case r.named():
			return "get"
		default:
			return "list"
		}
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	default:
		if r.named() {
			return "delete"
		}
		return "deletecollection"
	}
}

// linkWatches tells every list which route watches the same collection.
func linkWatches(routes []*route) {
	byTemplate := make(map[string]*route)
	for _, r := range routes {
		if r.verb == "watch" {
			byTemplate[r.template] = r
		}
	}
	for _, r := range routes {
		if r.verb == "list" {
			r.watch = byTemplate[r.prefix+"/watch"+strings.TrimPrefix(r.template, r.prefix)]
		}
	}
}

// bodyKind returns the kind that the body of a request must have; nil when the body is not an object.
func (r *route) bodyKind() *object.Kind {
	if r.object == nil {
		return nil
	}
	o, ok := r.object.Zero().Interface().(object.Object)
	if !ok {
		return nil
	}
	return o.ObjectKind()
}
