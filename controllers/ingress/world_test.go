package ingress_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	discoveryv1 "monoplane.dev/api/discovery/v1"
	discoveryv1rpc "monoplane.dev/api/discovery/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	networkingv1 "monoplane.dev/api/networking/v1"
	networkingv1rpc "monoplane.dev/api/networking/v1/rpc"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/ingress"
	"monoplane.dev/controllers/ingress/certs"
	"monoplane.dev/controllers/test/controllertest"
	"monoplane.dev/controllers/test/pipes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is the controller on a server, in virtual time, with endpoints that say their address.
type world struct {
	*testing.T
	server      *apitest.Server
	c           *client.Client
	http, https *pipes.Listener
	endpoints   map[netip.AddrPort]*pipes.Listener
	servers     []*http.Server
	stop        func()
}

func inWorld(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, server: apitest.Start(t), endpoints: map[netip.AddrPort]*pipes.Listener{}}
		w.c = w.server.Admin()
		w.server.Namespaces(t, "ns", "other")
		w.start(false)
		f(w)
		w.end()
	})
}

func (w *world) start(several bool) {
	w.Helper()
	w.http, w.https = pipes.Listen("192.0.2.1:80"), pipes.Listen("192.0.2.1:443")
	shared := controller.NewShared(w.server.Controller(controller.SharedRole().Name), nil)
	c, err := ingress.New(ingress.Config{
		Client: w.server.Controller("ingress"), Shared: shared, SeveralServers: several,
		Entry: controller.Ingress{HTTP: w.http, HTTPS: w.https, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
			Dial: func(ctx context.Context, _ string, at netip.AddrPort) (net.Conn, error) {
				if p := w.endpoints[at]; p != nil {
					return p.Dial(ctx)
				}
				return nil, syscall.ECONNREFUSED
			}},
	})
	w.must(err)
	if c.Ready() == nil {
		w.Error("ready before it ran")
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- controllertest.Run(ctx, shared, c) }()
	w.stop = func() {
		w.stop = nil
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			w.Errorf("Run ended with %v", err)
		}
	}
	w.settle()
	w.must(c.Ready())
}

// settle waits until all that was changed counts.
func (w *world) settle() {
	time.Sleep(time.Second)
	synctest.Wait()
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.end()
		w.Fatal(err)
	}
}

// end ends what runs in the bubble.
func (w *world) end() {
	if w.stop != nil {
		w.stop()
	}
	for _, s := range w.servers {
		_ = s.Close()
	}
	time.Sleep(time.Minute) // connections that are kept end
}

// service makes a Service with port 80, named http, and endpoints that answer with their name and address.
func (w *world) service(namespace, name string, addresses ...string) {
	w.Helper()
	_, err := w.c.Services.Create(w.Context(), &corev1rpc.CreateServiceRequest{Object: &corev1.Service{
		Metadata: &metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:     &corev1.ServiceSpec{Ports: []*corev1.ServicePort{{Name: "http", Port: 80, Protocol: "TCP"}}},
	}})
	w.must(err)
	slice := &discoveryv1.EndpointSlice{
		Metadata: &metav1.ObjectMeta{Namespace: namespace, Name: name + "-1",
			Labels: map[string]string{"kubernetes.io/service-name": name}},
		AddressType: "IPv4",
		Ports:       []*discoveryv1.EndpointPort{{Name: proto.String("http"), Port: proto.Int32(8080)}},
	}
	for _, a := range addresses {
		slice.Endpoints = append(slice.Endpoints, &discoveryv1.Endpoint{Addresses: []string{a}})
		w.listen(a, name)
	}
	_, err = w.c.EndpointSlices.Create(w.Context(), &discoveryv1rpc.CreateEndpointSliceRequest{Object: slice})
	w.must(err)
}

func (w *world) listen(address, name string) {
	at := netip.AddrPortFrom(netip.MustParseAddr(address), 8080)
	p := pipes.Listen(at.String())
	w.endpoints[at] = p
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
		func(rw http.ResponseWriter, r *http.Request) { fmt.Fprintf(rw, "%s at %s", name, address) })}
	go func() { _ = s.Serve(p) }()
	w.servers = append(w.servers, s)
}

// rule is a path of a host that leads to port 80 of a Service.
func rule(host, path, service string) *networkingv1.IngressRule {
	return &networkingv1.IngressRule{Host: host, IngressRuleValue: &networkingv1.IngressRuleValue{
		Http: &networkingv1.HTTPIngressRuleValue{Paths: []*networkingv1.HTTPIngressPath{{
			Path: path, PathType: proto.String("Prefix"), Backend: backend(service),
		}}},
	}}
}

func backend(service string) *networkingv1.IngressBackend {
	return &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
		Name: service, Port: &networkingv1.ServiceBackendPort{Number: 80},
	}}
}

func (w *world) ingress(namespace, name string, spec *networkingv1.IngressSpec) *networkingv1.Ingress {
	w.Helper()
	i, err := w.c.Ingresses.Create(w.Context(), &networkingv1rpc.CreateIngressRequest{Object: &networkingv1.Ingress{
		Metadata: &metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec,
	}})
	w.must(err)
	w.settle()
	return i
}

// get makes a request and returns what comes back, "CODE BODY", with the certificate that was shown, if one was.
func (w *world) get(url string) (string, *x509.Certificate) {
	w.Helper()
	transport := &http.Transport{
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return w.http.Dial(ctx) },
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}
	transport.DialTLSContext = func(ctx context.Context, _, address string) (net.Conn, error) {
		conn, err := w.https.Dial(ctx)
		if err != nil {
			return nil, err
		}
		name, _, _ := strings.Cut(address, ":")
		secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, ServerName: name})
		return secure, secure.HandshakeContext(ctx)
	}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Get(url)
	w.must(err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	w.must(err)
	text := fmt.Sprint(answer.StatusCode, " ", string(body))
	if answer.TLS != nil {
		return text, answer.TLS.PeerCertificates[0]
	}
	return text, nil
}

// wants checks what a request is answered with.
func (w *world) wants(url, want string) {
	w.Helper()
	if got, _ := w.get(url); !strings.HasPrefix(got, want) {
		w.Errorf("%s: %q; want %q", url, got, want)
	}
}

// events returns the reasons and notes of the events about an Ingress.
func (w *world) events(name string) string {
	w.Helper()
	time.Sleep(time.Minute)
	list, err := w.c.Events.List(w.Context(), &metav1.ListRequest{})
	w.must(err)
	var out strings.Builder
	for _, e := range list.GetItems() {
		if o := e.GetInvolvedObject(); o.GetKind() == "Ingress" && o.GetName() == name {
			fmt.Fprintf(&out, "%s: %s\n", e.GetReason(), e.GetMessage())
		}
	}
	return out.String()
}

// secret makes or replaces a Secret with a new certificate, which it returns.
func (w *world) secret(name string) *x509.Certificate {
	w.Helper()
	made, err := certs.SelfSigned()
	w.must(err)
	der, err := x509.MarshalPKCS8PrivateKey(made.PrivateKey)
	w.must(err)
	s := &corev1.Secret{Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: name}, Type: "kubernetes.io/tls",
		Data: map[string][]byte{
			"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made.Certificate[0]}),
			"tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
		}}
	if _, err := w.c.Secrets.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: name}); err == nil {
		_, err = w.c.Secrets.Update(w.Context(), &corev1rpc.UpdateSecretRequest{Namespace: "ns", Name: name, Object: s})
		w.must(err)
	} else {
		_, err = w.c.Secrets.Create(w.Context(), &corev1rpc.CreateSecretRequest{Object: s})
		w.must(err)
	}
	w.settle()
	return made.Leaf
}
