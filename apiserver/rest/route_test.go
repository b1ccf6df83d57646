package rest_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"monoplane.dev/api/services"
	"monoplane.dev/apiserver/rest"
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

func (r *recorder) NewStream(_ context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	r.method = method
	return nil, errRecorded
}

// TestBindings sends a request to every HTTP binding of every service and sees which gRPC method it reaches.
// It guards the pairing of rules with generated handlers by their order.
//
// spec: OBJ-15
func TestBindings(t *testing.T) {
	conn := &recorder{}
	h, err := rest.New(rest.Config{Conn: conn, Authenticate: asAdmin, Version: "1.36.3", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	fill := strings.NewReplacer("{namespace}", "ns1", "{name}", "n1")
	n := 0
	for _, s := range services.All() {
		for i := range s.Descriptor.Methods().Len() {
			m := s.Descriptor.Methods().Get(i)
			rule := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
			for _, b := range append([]*annotations.HttpRule{rule}, rule.GetAdditionalBindings()...) {
				method, path := pattern(b)
				req := httptest.NewRequest(method, fill.Replace(path), strings.NewReader("{}"))
				req.Header.Set("Content-Type", "application/json")
				if method == http.MethodPatch {
					req.Header.Set("Content-Type", "application/merge-patch+json")
				}
				conn.method, conn.req = "", nil
				h.ServeHTTP(httptest.NewRecorder(), req)
				want := "/" + string(s.Descriptor.FullName()) + "/" + string(m.Name())
				if conn.method != want {
					t.Errorf("%s %s reached %q, want %q", method, path, conn.method, want)
				}
				if r, ok := conn.req.(interface{ GetNamespace() string }); ok && strings.Contains(path, "{namespace}") && r.GetNamespace() != "ns1" {
					t.Errorf("%s %s: namespace %q", method, path, r.GetNamespace())
				}
				if r, ok := conn.req.(interface{ GetName() string }); ok && strings.Contains(path, "{name}") && r.GetName() != "n1" {
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
