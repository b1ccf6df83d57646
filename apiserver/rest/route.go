package rest

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"monoplane.dev/object"
	"monoplane.dev/object/service"
)

// route is one REST binding of a gRPC method.
type route struct {
	// service is what the method belongs to.
	service *service.Service
	// verb is the Kubernetes verb, such as "get" or "deletecollection".
	verb string
	// method and template are those of the google.api.http rule.
	method, template string
	// variables are the names of the path's variables, in order.
	variables []string
	// prefix is "/api/v1" or "/apis/GROUP/VERSION".
	prefix string
	// resource and subresource name what the path ends in, such as "pods" and "log".
	resource, subresource string
	namespaced            bool
	// input describes the request message, body its field that the HTTP body fills, empty for none.
	input protoreflect.MessageDescriptor
	body  string
	// stream is set when the answer is a stream, logs when it is one of plain text.
	stream, logs bool
	// query are the parameters that the query may set.
	query map[string]parameter
	// watch is the route that answers this one's requests with ?watch=true; nil for none.
	watch *route
	// handler is the generated gateway handler.
	handler runtime.HandlerFunc
}

// bindings makes the routes of a service: the rules of its methods, in the order of the .proto file, paired
// with the handlers that the generated code registers in the same order.
func bindings(ctx context.Context, s *service.Service, conn grpc.ClientConnInterface, options []runtime.ServeMuxOption) ([]*route, error) {
	var handlers []runtime.HandlerFunc
	capture := runtime.WithMiddlewares(func(h runtime.HandlerFunc) runtime.HandlerFunc {
		handlers = append(handlers, h)
		return h
	})
	mux := runtime.NewServeMux(append([]runtime.ServeMuxOption{capture}, options...)...)
	if err := s.Gateway(ctx, mux, conn); err != nil {
		return nil, fmt.Errorf("register the gateway handlers of %s: %w", s.Descriptor.FullName(), err)
	}
	var routes []*route
	methods := s.Descriptor.Methods()
	for i := range methods.Len() {
		m := methods.Get(i)
		rule, ok := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
		if !ok || rule == nil {
			continue
		}
		for _, b := range append([]*annotations.HttpRule{rule}, rule.GetAdditionalBindings()...) {
			r, err := newRoute(s, m, b)
			if err != nil {
				return nil, err
			}
			routes = append(routes, r)
		}
	}
	if len(routes) != len(handlers) {
		return nil, fmt.Errorf("%s has %d HTTP bindings but %d gateway handlers", s.Descriptor.FullName(), len(routes), len(handlers))
	}
	for i, r := range routes {
		r.handler = handlers[i]
	}
	return routes, nil
}

func newRoute(s *service.Service, m protoreflect.MethodDescriptor, rule *annotations.HttpRule) (*route, error) {
	r := &route{service: s, input: m.Input(), body: rule.GetBody(), stream: m.IsStreamingServer()}
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
		return nil, fmt.Errorf("%s has an HTTP binding of an unknown method", m.FullName())
	}
	if err := r.parseTemplate(); err != nil {
		return nil, fmt.Errorf("%s: %w", m.FullName(), err)
	}
	r.verb = r.verbOf(strings.Contains(r.template, "/watch/"))
	r.logs = r.stream && r.verb != "watch"
	r.query = parametersOf(r)
	return r, nil
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
		r.variables = append(r.variables, "namespace")
		rest = rest[2:]
	}
	r.resource = rest[0]
	if len(rest) > 1 {
		if rest[1] != "{name}" {
			return fmt.Errorf("path %s: expected {name}, found %s", r.template, rest[1])
		}
		r.variables = append(r.variables, "name")
	}
	if len(rest) > 2 {
		r.subresource = rest[2]
	}
	if len(rest) > 3 {
		return fmt.Errorf("path %s has too many segments", r.template)
	}
	return nil
}

func (r *route) named() bool {
	return len(r.variables) > 0 && r.variables[len(r.variables)-1] == "name"
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

// parameters puts the values of the path's variables into m by name, as the gateway wants them.
func (r *route) parameters(m map[string]string, v values) map[string]string {
	for i, name := range r.variables {
		m[name] = v.list[i]
	}
	return m
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
	if r.body == "" {
		return nil
	}
	f := r.input.Fields().ByTextName(r.body)
	if f == nil || f.Message() == nil {
		return nil
	}
	o, ok := newMessage(f.Message()).(object.Object)
	if !ok {
		return nil
	}
	return o.ObjectKind()
}
