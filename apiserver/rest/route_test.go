package rest_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"monoplane.dev/api/services"
	"monoplane.dev/apiserver/rest"
	"monoplane.dev/object/service"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
)

// recorder is a connection that notes which method was called, and refuses the call.
type recorder struct {
	method string
	req    any
}

var errRecorded = errors.New("recorded")

func (r *recorder) Invoke(_ context.Context, method string, args, _ any, _ ...grpc.CallOption) error {
	r.method, r.req = method, args
	return errRecorded
}

func (r *recorder) NewStream(
	_ context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption,
) (grpc.ClientStream, error) {
	r.method = method
	return nil, errRecorded
}

// TestBindings sends a request to every HTTP binding of every service and sees which gRPC method it reaches.
//
// spec: OBJ-15
func TestBindings(t *testing.T) {
	conn := &recorder{}
	h, err := rest.New(rest.Config{Conn: conn, Authenticate: asAdmin, Version: "1.36.3",
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	fill := strings.NewReplacer("{namespace}", "ns1", "{name}", "n1", "{path=**}", "a/b")
	n := 0
	for _, s := range services.All() {
		for i := range s.Descriptor.Methods().Len() {
			m := s.Descriptor.Methods().Get(i)
			rule := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
			for _, b := range append([]*annotations.HttpRule{rule}, rule.GetAdditionalBindings()...) {
				method, path := pattern(b)
				req := httptest.NewRequest(method, fill.Replace(path), strings.NewReader("{}"))
				req.Header.Set("Content-Type", "application/json")
				if m.IsStreamingClient() {
					req.Header.Set("Connection", "Upgrade")
					req.Header.Set("Upgrade", "SPDY/3.1")
					req.URL.RawQuery = "stdout=true"
				}
				if method == http.MethodPatch {
					req.Header.Set("Content-Type", "application/merge-patch+json")
				}
				conn.method, conn.req = "", nil
				h.ServeHTTP(httptest.NewRecorder(), req)
				want := "/" + string(s.Descriptor.FullName()) + "/" + string(m.Name())
				if conn.method != want {
					t.Errorf("%s %s reached %q, want %q", method, path, conn.method, want)
				}
				if r, ok := conn.req.(interface{ GetNamespace() string }); ok && strings.Contains(path, "{namespace}") &&
					r.GetNamespace() != "ns1" {
					t.Errorf("%s %s: namespace %q", method, path, r.GetNamespace())
				}
				if r, ok := conn.req.(interface{ GetName() string }); ok && strings.Contains(path, "{name}") &&
					r.GetName() != "n1" {
					t.Errorf("%s %s: name %q", method, path, r.GetName())
				}
				n++
			}
		}
	}
	if n < 80 {
		t.Errorf("only %d bindings were found", n)
	}
}

// A method that its .proto has and its server does not, or the other way round, is found when the front starts.
//
// spec: OBJ-15
func TestMethodsArePairedByName(t *testing.T) {
	const full = "monoplane.core.v1.ConfigMaps"
	tests := []struct {
		name, want string
		change     func(*grpc.ServiceDesc)
	}{
		{"missing", full + ".Delete is in the .proto, but is not served", func(d *grpc.ServiceDesc) {
			d.Methods = slices.DeleteFunc(slices.Clone(d.Methods),
				func(m grpc.MethodDesc) bool { return m.MethodName == "Delete" })
		}},
		{"missing stream", full + ".Watch is in the .proto, but is not served",
			func(d *grpc.ServiceDesc) { d.Streams = nil }},
		{"extra", full + ".Undo is served, but its .proto has no such method", func(d *grpc.ServiceDesc) {
			d.Methods = append(slices.Clone(d.Methods), grpc.MethodDesc{MethodName: "Undo"})
		}},
		{"renamed", full + ".Remove is served, but its .proto has no such method", func(d *grpc.ServiceDesc) {
			d.Methods = slices.Clone(d.Methods)
			d.Methods[slices.IndexFunc(d.Methods, func(m grpc.MethodDesc) bool {
				return m.MethodName == "Delete"
			})].MethodName = "Remove"
		}},
		{"another shape", full + ".Watch: only its answer may be a stream", func(d *grpc.ServiceDesc) {
			d.Streams = nil
			d.Methods = append(slices.Clone(d.Methods), grpc.MethodDesc{MethodName: "Watch"})
		}},
		{"reordered", "", func(d *grpc.ServiceDesc) {
			d.Methods = slices.Clone(d.Methods)
			slices.Reverse(d.Methods)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			i := slices.IndexFunc(services.All(), func(s *service.Service) bool { return s.Kind == corev1.ConfigMapKind })
			s, d := *services.All()[i], corev1rpc.ConfigMaps_ServiceDesc
			tt.change(&d)
			s.Desc = &d
			conn := &recorder{}
			h, err := rest.New(rest.Config{
				Conn: conn, Authenticate: asAdmin, Version: "1.36.3", Logger: slog.New(slog.DiscardHandler),
				Services: []*service.Service{&s},
			})
			switch {
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("started with %v, want %q", err, tt.want)
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want == "":
				defer h.Close()
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("DELETE", "/api/v1/namespaces/a/configmaps/b", nil))
				if conn.method != corev1rpc.ConfigMaps_Delete_FullMethodName {
					t.Errorf("a DELETE reached %s", conn.method)
				}
			}
		})
	}
}

func pattern(r *annotations.HttpRule) (method, path string) {
	switch p := r.GetPattern().(type) {
	case *annotations.HttpRule_Get:
		return http.MethodGet, p.Get
	case *annotations.HttpRule_Post:
		return http.MethodPost, p.Post
	case *annotations.HttpRule_Put:
		return http.MethodPut, p.Put
	case *annotations.HttpRule_Patch:
		return http.MethodPatch, p.Patch
	case *annotations.HttpRule_Delete:
		return http.MethodDelete, p.Delete
	}
	return "", ""
}
