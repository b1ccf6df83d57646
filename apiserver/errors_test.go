package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/warning"
	"monoplane.dev/client/inproc"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// failing serves pods with an error of the test's choice.
type failing struct {
	corev1rpc.UnimplementedPodsServer
	fail func(ctx context.Context) error
}

func (f *failing) Get(ctx context.Context, _ *metav1.GetRequest) (*corev1.Pod, error) {
	return nil, f.fail(ctx)
}

func (f *failing) Watch(_ *metav1.WatchRequest, s grpc.ServerStreamingServer[corev1rpc.PodEvents]) error {
	return f.fail(s.Context())
}

// overWire serves s by a real gRPC server with the API server's interceptors.
func (c *cluster) overWire(api *apiserver.Server, s corev1rpc.PodsServer) corev1rpc.PodsClient {
	c.t.Helper()
	identify := func(ctx context.Context) context.Context { return authn.WithUser(ctx, adminUser()) }
	unary := append([]grpc.UnaryServerInterceptor{func(ctx context.Context, req any, _ *grpc.UnaryServerInfo,
		h grpc.UnaryHandler) (any, error) {
		return h(identify(ctx), req)
	}}, api.UnaryInterceptors()...)
	stream := append([]grpc.StreamServerInterceptor{func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo,
		h grpc.StreamHandler) error {
		return h(srv, &identified{ss, identify(ss.Context())})
	}}, api.StreamInterceptors()...)
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(unary...), grpc.ChainStreamInterceptor(stream...))
	corev1rpc.RegisterPodsServer(server, s)
	lis := bufconn.Listen(1 << 16)
	served := make(chan error, 1)
	go func() { served <- server.Serve(lis) }()
	conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			c.t.Error(err)
		}
		server.Stop()
		if err := <-served; err != nil {
			c.t.Error(err)
		}
	})
	return corev1rpc.NewPodsClient(conn)
}

type identified struct {
	grpc.ServerStream
	ctx context.Context
}

func (i *identified) Context() context.Context { return i.ctx }

// Every kind of error crosses gRPC with its code and its details, in unary calls and in streams, and what is
// not an API error crosses as nothing but Internal. spec: OBJ-3
func TestErrorsOverGRPC(t *testing.T) {
	f := &failing{}
	registry := prometheus.NewRegistry()
	c := start(t, func(cfg *apiserver.Config) { cfg.Registerer = registry })
	pods := c.overWire(c.api, f)

	for _, x := range []struct {
		err    error
		code   codes.Code
		reason apierrors.Reason
		http   int32
	}{
		{apierrors.New(apierrors.BadRequest, "x"), codes.InvalidArgument, apierrors.BadRequest, 400},
		{apierrors.New(apierrors.Unauthorized, "x"), codes.Unauthenticated, apierrors.Unauthorized, 401},
		{apierrors.NewForbidden(corev1.PodKind, "p", "x"), codes.PermissionDenied, apierrors.Forbidden, 403},
		{apierrors.NewNotFound(corev1.PodKind, "p"), codes.NotFound, apierrors.NotFound, 404},
		{apierrors.New(apierrors.MethodNotAllowed, "x"), codes.Unimplemented, apierrors.MethodNotAllowed, 405},
		{apierrors.New(apierrors.NotAcceptable, "x"), codes.InvalidArgument, apierrors.NotAcceptable, 406},
		{apierrors.NewAlreadyExists(corev1.PodKind, "p"), codes.AlreadyExists, apierrors.AlreadyExists, 409},
		{apierrors.NewConflict(corev1.PodKind, "p", "x"), codes.Aborted, apierrors.Conflict, 409},
		{apierrors.New(apierrors.Expired, "x"), codes.OutOfRange, apierrors.Expired, 410},
		{apierrors.New(apierrors.RequestEntityTooLarge, "x"), codes.ResourceExhausted, apierrors.RequestEntityTooLarge, 413},
		{apierrors.New(apierrors.UnsupportedMediaType, "x"), codes.InvalidArgument, apierrors.UnsupportedMediaType, 415},
		{apierrors.NewInvalid(corev1.PodKind, "p",
			[]apierrors.Cause{{Type: "FieldValueInvalid", Field: "spec", Message: "x"}}), codes.InvalidArgument,
			apierrors.Invalid, 422},
		{apierrors.New(apierrors.TooManyRequests, "x").WithRetryAfter(7), codes.ResourceExhausted, apierrors.TooManyRequests,
			429},
		{apierrors.NewInternal(errors.New("secret")), codes.Internal, apierrors.InternalError, 500},
		{errors.New("secret"), codes.Internal, apierrors.InternalError, 500},
		{fmt.Errorf("secret: %w", errors.ErrUnsupported), codes.Internal, apierrors.InternalError, 500},
		{apierrors.New(apierrors.ServiceUnavailable, "x"), codes.Unavailable, apierrors.ServiceUnavailable, 503},
		{apierrors.New(apierrors.Timeout, "x"), codes.DeadlineExceeded, apierrors.Timeout, 504},
		{context.DeadlineExceeded, codes.DeadlineExceeded, apierrors.Timeout, 504},
	} {
		f.fail = func(context.Context) error { return x.err }
		_, unary := pods.Get(ctx(t), &metav1.GetRequest{Namespace: "default", Name: "p"})
		w := must(pods.Watch(ctx(t), &metav1.WatchRequest{}))(t)
		_, stream := w.Recv()
		for _, got := range []error{unary, stream} {
			s := apierrors.From(got).Status()
			if status.Code(got) != x.code || s.GetReason() != string(x.reason) || s.GetCode() != x.http {
				t.Errorf("%v: got %v, %v", x.err, status.Code(got), s)
			}
			if strings.Contains(got.Error(), "secret") {
				t.Errorf("the client was told: %v", got)
			}
			var api *apierrors.Error
			if errors.As(x.err, &api) &&
				api.Status().GetDetails().GetRetryAfterSeconds() != s.GetDetails().GetRetryAfterSeconds() {
				t.Errorf("%v: details were lost: %v", x.err, s)
			}
		}
	}
	if !strings.Contains(c.log.String(), "secret") {
		t.Error("what the client is not told must be in the log")
	}
	if n := counted(t, registry, "apiserver_request_total"); n < 30 {
		t.Errorf("%v requests counted", n)
	}
}

func counted(t *testing.T, g prometheus.Gatherer, name string) (n float64) {
	families := must(g.Gather())(t)
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

func TestPanicsAndWarningsOverGRPC(t *testing.T) {
	f := &failing{}
	c := start(t)
	pods := c.overWire(c.api, f)
	f.fail = func(context.Context) error { panic("boom") }
	if _, err := pods.Get(ctx(t), &metav1.GetRequest{}); status.Code(err) != codes.Internal ||
		strings.Contains(err.Error(), "boom") {
		t.Errorf("unary: %v", err)
	}
	w := must(pods.Watch(ctx(t), &metav1.WatchRequest{}))(t)
	if _, err := w.Recv(); status.Code(err) != codes.Internal {
		t.Errorf("stream: %v", err)
	}
	if !strings.Contains(c.log.String(), "boom") || !strings.Contains(c.log.String(), "errors_test.go") {
		t.Errorf("the panic and its stack must be logged: %s", c.log.String())
	}
	f.fail = func(ctx context.Context) error {
		warning.Add(ctx, "mind this")
		return apierrors.NewNotFound(corev1.PodKind, "p")
	}
	var header metadata.MD
	if _, err := pods.Get(ctx(t), &metav1.GetRequest{}, grpc.Header(&header)); !apierrors.Is(err, apierrors.NotFound) ||
		header.Get("warning")[0] != "mind this" {
		t.Errorf("%v, %v", header, err)
	}
}

// A front that collects warnings gets those of refused requests too, as gRPC clients do, and no header.
func TestWarningsReachWhoCollects(t *testing.T) {
	c := start(t)
	pods := corev1rpc.NewPodsClient(c.server.Conn(inproc.PassValues()))
	collected, warnings := warning.WithCollector(authn.WithUser(ctx(t), adminUser()))
	var header metadata.MD
	c.createPod(newPod("web"))
	_, err := pods.Patch(collected, &metav1.PatchRequest{
		Namespace: "default", Name: "web", PatchType: "application/merge-patch+json",
		Patch: []byte(`{"unheard":1,"metadata":{"labels":{"a":"not valid"}}}`),
	}, grpc.Header(&header))
	if !apierrors.Is(err, apierrors.Invalid) {
		t.Fatal(err)
	}
	if texts := warnings.Texts(); len(texts) != 1 || texts[0] != `unknown field "unheard"` {
		t.Errorf("collected %q", texts)
	}
	if len(header) > 0 {
		t.Errorf("header %v", header)
	}
}

// No method of any service can be called without an identity. spec: OBJ-15
func TestEveryMethodIsAuthorized(t *testing.T) {
	c := start(t)
	anonymous := c.as(nil)
	message := func(d protoreflect.MessageDescriptor) proto.Message {
		return must(protoregistry.GlobalTypes.FindMessageByName(d.FullName()))(t).New().Interface()
	}
	tried := 0
	for name := range c.server.GetServiceInfo() {
		d := must(protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name)))(t)
		methods := d.(protoreflect.ServiceDescriptor).Methods()
		for i := range methods.Len() {
			m := methods.Get(i)
			full := "/" + name + "/" + string(m.Name())
			var err error
			if m.IsStreamingServer() {
				s := must(anonymous.conn.NewStream(ctx(t), &grpc.StreamDesc{ServerStreams: true}, full))(t)
				if err = s.SendMsg(message(m.Input())); err == nil {
					err = s.RecvMsg(message(m.Output()))
				}
			} else {
				err = anonymous.conn.Invoke(ctx(t), full, message(m.Input()), message(m.Output()))
			}
			if !apierrors.Is(err, apierrors.Unauthorized) {
				t.Errorf("%s without identity: %v", full, err)
			}
			tried++
		}
	}
	if tried < 70 {
		t.Errorf("only %d methods", tried)
	}
}
