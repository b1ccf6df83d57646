package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"monoplane.dev/api/services"
	"monoplane.dev/object"

	coordinationv1 "monoplane.dev/api/coordination/v1"
	coordinationv1rpc "monoplane.dev/api/coordination/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// recorder is a backend that notes how it is called and answers with obj.
type recorder struct {
	obj   object.Object
	err   error
	calls []string
}

func (r *recorder) note(format string, args ...any) {
	r.calls = append(r.calls, fmt.Sprintf(format, args...))
}

func (r *recorder) Get(_ context.Context, req *metav1.GetRequest) (object.Object, error) {
	r.note("get %s/%s", req.GetNamespace(), req.GetName())
	return r.obj, r.err
}

func (r *recorder) GetPart(_ context.Context, sub string, req *metav1.GetRequest) (object.Object, error) {
	r.note("get %s/%s %q", req.GetNamespace(), req.GetName(), sub)
	return r.obj, r.err
}

func (r *recorder) List(_ context.Context, req *metav1.ListRequest) (object.Items, error) {
	r.note("list %s", req.GetNamespace())
	return object.Items{Meta: &metav1.ListMeta{ResourceVersion: "9"}, Objects: []object.Object{r.obj}}, r.err
}

func (r *recorder) Watch(
	_ context.Context, _ *metav1.WatchRequest, accept func() error, send func([]object.Event) error,
) error {
	if err := accept(); err != nil {
		return err
	}
	err := send([]object.Event{{Type: object.Added, Object: r.obj}, {Type: object.Bookmark, Object: r.obj}})
	if err != nil {
		return err
	}
	return send([]object.Event{{Type: object.Error, Status: &metav1.Status{Reason: "Expired"}}})
}

func (r *recorder) Create(
	_ context.Context, namespace string, o object.Object, opts object.WriteOptions,
) (object.Object, error) {
	r.note("create %s/%s %v", namespace, o.GetMetadata().GetName(), opts)
	return r.obj, r.err
}

func (r *recorder) Update(
	_ context.Context, namespace, name, sub string, o object.Object, opts object.WriteOptions,
) (object.Object, error) {
	r.note("update %s/%s %q %s %v", namespace, name, sub, o.GetMetadata().GetName(), opts)
	return r.obj, r.err
}

func (r *recorder) Patch(_ context.Context, sub string, req *metav1.PatchRequest) (object.Object, error) {
	r.note("patch %s/%s %q", req.GetNamespace(), req.GetName(), sub)
	return r.obj, r.err
}

func (r *recorder) Delete(_ context.Context, req *metav1.DeleteRequest) (object.Object, error) {
	r.note("delete %s/%s", req.GetNamespace(), req.GetName())
	return r.obj, r.err
}

func (r *recorder) DeleteCollection(_ context.Context, req *metav1.DeleteCollectionRequest) (object.Items, error) {
	r.note("deletecollection %s", req.GetNamespace())
	return object.Items{Objects: []object.Object{r.obj}}, r.err
}

// stream is the server's end of a Watch.
type stream struct {
	grpc.ServerStream
	headers int
	sent    []*corev1rpc.PodEvents
}

func (s *stream) Context() context.Context              { return context.Background() }
func (s *stream) SendHeader(metadata.MD) error          { s.headers++; return nil }
func (s *stream) Send(batch *corev1rpc.PodEvents) error { s.sent = append(s.sent, batch); return nil }

// spec: OBJ-15
func TestAdapterPassesEveryStandardCall(t *testing.T) {
	pod := &corev1.Pod{Metadata: &metav1.ObjectMeta{Name: "p", Uid: "u"}}
	r := &recorder{obj: pod}
	var pods corev1rpc.PodsServer = corev1rpc.PodsBackend{Backend: r}
	var namespaces corev1rpc.NamespacesServer = corev1rpc.NamespacesBackend{
		Backend: &recorder{obj: new(corev1.Namespace)},
	}
	ctx := context.Background()
	check := func(got *corev1.Pod, err error) {
		t.Helper()
		if got != pod || err != nil {
			t.Errorf("got %v, %v", got, err)
		}
	}
	check(pods.Get(ctx, &metav1.GetRequest{Namespace: "n", Name: "p"}))
	check(pods.Create(ctx, &corev1rpc.CreatePodRequest{Namespace: "n", Object: pod, DryRun: []string{"All"},
		FieldManager: "m", FieldValidation: "Strict"}))
	check(pods.Update(ctx, &corev1rpc.UpdatePodRequest{Namespace: "n", Name: "p", Object: pod}))
	check(pods.UpdateStatus(ctx, &corev1rpc.UpdatePodRequest{Namespace: "n", Name: "p"}))
	check(pods.Patch(ctx, &metav1.PatchRequest{Namespace: "n", Name: "p"}))
	check(pods.PatchStatus(ctx, &metav1.PatchRequest{Namespace: "n", Name: "p"}))
	check(pods.Delete(ctx, &metav1.DeleteRequest{Namespace: "n", Name: "p"}))
	for _, list := range []func() (*corev1.PodList, error){
		func() (*corev1.PodList, error) { return pods.List(ctx, &metav1.ListRequest{Namespace: "n"}) },
		func() (*corev1.PodList, error) {
			return pods.DeleteCollection(ctx, &metav1.DeleteCollectionRequest{Namespace: "n"})
		},
	} {
		if got, err := list(); err != nil || len(got.GetItems()) != 1 || got.GetItems()[0] != pod {
			t.Errorf("got %v, %v", got, err)
		}
	}
	want := []string{
		"get n/p", "create n/p {[All] m Strict}", `update n/p "" p {[]  }`, `update n/p "status"  {[]  }`, `patch n/p ""`,
		`patch n/p "status"`,
		"delete n/p", "list n", "deletecollection n",
	}
	if !slices.Equal(r.calls, want) {
		t.Errorf("got  %q\nwant %q", r.calls, want)
	}
	if _, err := namespaces.Finalize(ctx, &corev1rpc.UpdateNamespaceRequest{Name: "x"}); err != nil {
		t.Error(err)
	}
	if got := namespaces.(corev1rpc.NamespacesBackend).Backend.(*recorder).calls; !slices.Equal(got,
		[]string{`update /x "finalize"  {[]  }`}) {
		t.Errorf("got %q", got)
	}
}

func TestAdapterAnswersADeletionWithAStatus(t *testing.T) {
	leases := coordinationv1rpc.LeasesBackend{Backend: &recorder{obj: &coordinationv1.Lease{
		Metadata: &metav1.ObjectMeta{Uid: "u"}}}}
	got, err := leases.Delete(context.Background(), &metav1.DeleteRequest{Name: "a"})
	want := &metav1.Status{Status: "Success", Details: &metav1.StatusDetails{Name: "a", Group: "coordination.k8s.io",
		Kind: "leases", Uid: "u"}}
	if err != nil || !proto.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestAdapterPassesErrorsOn(t *testing.T) {
	failure := errors.New("failure")
	pods := corev1rpc.PodsBackend{Backend: &recorder{err: failure}}
	if got, err := pods.Get(context.Background(), nil); got != nil || !errors.Is(err, failure) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := pods.List(context.Background(), nil); got != nil || !errors.Is(err, failure) {
		t.Errorf("got %v, %v", got, err)
	}
	pods.Backend = &recorder{obj: new(corev1.Node)}
	if got, err := pods.Get(context.Background(), nil); got != nil || err == nil ||
		err.Error() != "backend answered with *corev1.Node instead of *corev1.Pod" {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := pods.List(context.Background(), nil); got != nil || err == nil {
		t.Errorf("got %v, %v", got, err)
	}
}

// spec: OBJ-7
func TestAdapterStreamsBatches(t *testing.T) {
	pod := new(corev1.Pod)
	s := new(stream)
	if err := (corev1rpc.PodsBackend{Backend: &recorder{obj: pod}}).Watch(new(metav1.WatchRequest), s); err != nil {
		t.Fatal(err)
	}
	if s.headers != 1 || len(s.sent) != 2 || len(s.sent[0].GetEvents()) != 2 || len(s.sent[1].GetEvents()) != 1 {
		t.Fatalf("got %d headers, %v", s.headers, s.sent)
	}
	first, failure := s.sent[0].GetEvents()[0], s.sent[1].GetEvents()[0]
	if first.GetType() != "ADDED" || first.GetObject() != pod || failure.GetStatus().GetReason() != "Expired" ||
		failure.GetObject() != nil {
		t.Errorf("got %v", s.sent)
	}
}

// Every service about a kind has an adapter for all its standard methods; the others are named here.
func TestAdaptersCoverTheServices(t *testing.T) {
	own := []string{"Bind", "Evict", "Log", "Exec", "Attach", "PortForward", "CreateToken", "Proxy"} // written by hand
	for _, svc := range services.All() {
		adapter := svc.Adapt(nil)
		unimplemented := reflect.TypeOf(adapter).Field(0).Type
		for i := range unimplemented.NumMethod() {
			name := unimplemented.Method(i).Name
			if !slices.Contains(own, name) && !declares(adapter, name) {
				t.Errorf("%T does not serve %s", adapter, name)
			}
		}
	}
}

// declares says whether adapter has a method of its own rather than the unimplemented one. Its own panics
// here, for want of a backend.
func declares(adapter any, name string) (reached bool) {
	defer func() { reached = recover() != nil }()
	method := reflect.ValueOf(adapter).MethodByName(name)
	args := make([]reflect.Value, method.Type().NumIn())
	for i := range args {
		args[i] = reflect.Zero(method.Type().In(i))
		if args[i].Type() == reflect.TypeFor[context.Context]() {
			args[i] = reflect.ValueOf(context.Background())
		}
	}
	method.Call(args)
	return false
}
