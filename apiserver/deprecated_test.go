package apiserver_test

import (
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"monoplane.dev/apiserver/warning"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// Whatever a client does with Endpoints, it hears which kind to use in their place, and once; with other kinds
// nothing. spec: WORK-4
func TestEndpointsAreDeprecated(t *testing.T) {
	admin := start(t).admin()
	made := &corev1.Endpoints{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "db"},
		Subsets: []*corev1.EndpointSubset{{
			Addresses: []*corev1.EndpointAddress{{Ip: "192.0.2.7"}}, Ports: []*corev1.EndpointPort{{Port: 5432}},
		}},
	}
	name := &metav1.GetRequest{Namespace: "default", Name: "db"}
	for _, tt := range []struct {
		verb string
		ask  func(o grpc.CallOption) error
	}{
		{"create", func(o grpc.CallOption) error {
			_, err := admin.Endpoints.Create(ctx(t), &corev1rpc.CreateEndpointsRequest{Object: made}, o)
			return err
		}},
		{"get", func(o grpc.CallOption) error {
			_, err := admin.Endpoints.Get(ctx(t), name, o)
			return err
		}},
		{"list", func(o grpc.CallOption) error {
			_, err := admin.Endpoints.List(ctx(t), &metav1.ListRequest{}, o)
			return err
		}},
		{"update", func(o grpc.CallOption) error {
			_, err := admin.Endpoints.Update(ctx(t), &corev1rpc.UpdateEndpointsRequest{Object: made}, o)
			return err
		}},
		{"patch", func(o grpc.CallOption) error {
			_, err := admin.Endpoints.Patch(ctx(t), &metav1.PatchRequest{
				Namespace: "default", Name: "db", PatchType: "application/merge-patch+json",
				Patch: []byte(`{"metadata":{"labels":{"a":"b"}}}`),
			}, o)
			return err
		}},
		{"delete", func(o grpc.CallOption) error {
			_, err := admin.Endpoints.Delete(ctx(t), &metav1.DeleteRequest{Namespace: "default", Name: "db"}, o)
			return err
		}},
		{"deletecollection", func(o grpc.CallOption) error {
			_, err := admin.Endpoints.DeleteCollection(ctx(t), &metav1.DeleteCollectionRequest{Namespace: "default"}, o)
			return err
		}},
	} {
		var header metadata.MD
		if err := tt.ask(grpc.Header(&header)); err != nil {
			t.Errorf("%s: %v", tt.verb, err)
		}
		wantsDeprecated(t, tt.verb, header)
	}

	stream := must(admin.Endpoints.Watch(ctx(t), &metav1.WatchRequest{TimeoutSeconds: proto.Int64(1)}))(t)
	wantsDeprecated(t, "watch", must(stream.Header())(t))

	var header metadata.MD
	must(admin.EndpointSlices.List(ctx(t), &metav1.ListRequest{}, grpc.Header(&header)))(t)
	if got := header.Get(warning.MetadataKey); got != nil {
		t.Errorf("slices: %q", got)
	}
}

func wantsDeprecated(t *testing.T, verb string, header metadata.MD) {
	t.Helper()
	want := []string{"v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"}
	if got := header.Get(warning.MetadataKey); !slices.Equal(got, want) {
		t.Errorf("%s: warned of %q, want %q", verb, got, want)
	}
}
