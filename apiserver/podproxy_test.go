package apiserver_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/kinds/define"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	nodev1rpc "monoplane.dev/api/node/v1/rpc"
)

// forwards stands for the agents: every port answers all that is said with 204.
type forwards struct {
	define.StreamSource

	mu    sync.Mutex
	asked []string
}

func (f *forwards) PortForward(
	_ context.Context, node string, call *nodev1rpc.PortForwardCall,
) (define.Conversation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, fmt.Sprint(node, " ", call.GetUid(), " ", call.GetPort()))
	return &noContent{asked: make(chan struct{}, 100), said: []*corev1.StreamOutput{{}}}, nil
}

func (f *forwards) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked := f.asked
	f.asked = nil
	return asked
}

type noContent struct {
	asked chan struct{}
	said  []*corev1.StreamOutput
	once  bool
}

func (c *noContent) Send(*corev1.StreamInput) error {
	c.asked <- struct{}{}
	return nil
}

func (c *noContent) Recv() (*corev1.StreamOutput, error) {
	switch {
	case len(c.said) > 0:
		out := c.said[0]
		c.said = c.said[1:]
		return out, nil
	case c.once:
		return nil, io.EOF
	}
	<-c.asked
	c.once = true
	return &corev1.StreamOutput{
		Data: []byte("HTTP/1.1 204 No Content\r\n\r\n"), Status: &metav1.Status{Status: "Success"},
	}, nil
}

func (c *noContent) Close() {}

// proxied is the code of the answer of a call of Proxy, or why there is none.
func proxied[Q any](stream grpc.BidiStreamingClient[Q, corev1.ProxyOutput], err error, req *Q) (int32, error) {
	if err != nil {
		return 0, err
	}
	if err := stream.Send(req); err != nil && err != io.EOF {
		return 0, err
	}
	out, err := stream.Recv()
	return out.GetCode(), err
}

// Each method needs its own right, in the words of Kubernetes, and to forward ports is another one.
//
// spec: OBJ-15
func TestProxyRights(t *testing.T) {
	f := &forwards{}
	c := start(t, func(cfg *apiserver.Config) { cfg.Streams = f })
	c.register("n1")
	c.boundPod("p", "n1")
	jane := c.as(&authn.User{Name: "jane", Groups: []string{authn.AuthenticatedGroup}})
	ask := func(who client, method string) error {
		stream, err := who.Pods.Proxy(ctx(t))
		_, err = proxied(stream, err, &corev1rpc.ProxyPodRequest{
			Namespace: "default", Name: "p", Input: &corev1.ProxyInput{Method: method, End: true},
		})
		return err
	}
	c.grant("forwarder", "default", rule("get create", "", "pods/portforward pods/exec pods"), person("jane"))
	rights := map[string]string{"GET": "get", "HEAD": "get", "": "get", "POST": "create", "PUT": "update",
		"PATCH": "patch", "DELETE": "delete", "OPTIONS": "*", "PROPFIND": "*"}
	granted := map[string]bool{}
	for _, verb := range []string{"", "get", "create", "update", "patch", "delete", "*"} {
		if verb != "" {
			name := strings.Replace(verb, "*", "all", 1)
			c.grant(name, "default", rule(verb, "", "pods/proxy"), person("jane"))
			granted[verb] = true
		}
		for method, right := range rights {
			err := ask(jane, method)
			if allowed := granted[right]; allowed && err != nil || !allowed && !apierrors.Is(err, apierrors.Forbidden) {
				t.Errorf("%q of who has the rights %v: %v", method, granted, err)
			}
		}
	}
	if err := ask(c.as(nil), "GET"); !apierrors.Is(err, apierrors.Unauthorized) {
		t.Errorf("of nobody: %v", err)
	}
	if err := ask(c.agent("n1"), "GET"); !apierrors.Is(err, apierrors.Forbidden) {
		t.Errorf("of an agent: %v", err)
	}
}

// A request goes to the pod that is meant and to none else, whoever has written the addresses of a service.
//
// spec: CTR-9
func TestProxyTargets(t *testing.T) {
	f := &forwards{}
	c := start(t, func(cfg *apiserver.Config) { cfg.Streams = f })
	admin := c.admin()
	c.register("n1")
	at := func(name, ip string) *corev1.Pod {
		p := c.boundPod(name, "n1")
		return must(c.agent("n1").Pods.UpdateStatus(ctx(t), &corev1rpc.UpdatePodRequest{Object: &corev1.Pod{
			Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name, Uid: p.Metadata.Uid},
			Status: &corev1.PodStatus{Phase: "Running", HostIP: "10.0.0.1", PodIP: ip,
				PodIPs: []*corev1.PodIP{{Ip: ip}}, Conditions: p.GetStatus().GetConditions()},
		}}))(t)
	}
	a := at("a", "10.0.0.2")
	c.createPod(newPod("unbound"))
	must(admin.Services.Create(ctx(t), &corev1rpc.CreateServiceRequest{Object: &corev1.Service{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "s"},
		Spec: &corev1.ServiceSpec{Ports: []*corev1.ServicePort{
			{Name: "web", Port: 80}, {Name: "other", Port: 81}, {Name: "lies", Port: 82},
		}},
	}}))(t)
	ref := func(namespace, name string) *corev1.ObjectReference {
		return &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: name}
	}
	must(admin.Endpoints.Create(ctx(t), &corev1rpc.CreateEndpointsRequest{Object: &corev1.Endpoints{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "s"},
		Subsets: []*corev1.EndpointSubset{{
			Addresses: []*corev1.EndpointAddress{{Ip: "10.0.0.2", TargetRef: ref("default", "a")}},
			Ports:     []*corev1.EndpointPort{{Name: "web", Port: 8080}},
		}, {
			Addresses: []*corev1.EndpointAddress{
				{Ip: "10.9.9.8"}, {Ip: "10.9.9.9", TargetRef: ref("default", "a")},
				{Ip: "10.0.0.2", TargetRef: ref("kube-system", "a")}, {Ip: "10.0.0.2", TargetRef: ref("default", "gone")},
				{Ip: "10.0.0.2", TargetRef: &corev1.ObjectReference{Kind: "Node", Namespace: "default", Name: "n1"}},
				{Ip: "10.0.0.2", TargetRef: ref("default", "unbound")},
			},
			Ports: []*corev1.EndpointPort{{Name: "lies", Port: 9}},
		}},
	}}))(t)
	for _, x := range []struct {
		kind, name string
		want       apierrors.Reason
		port       int
	}{
		{"pod", "a:8080", "", 8080}, {"pod", "http:a:", "", 80}, {"pod", "a:web", apierrors.BadRequest, 0},
		{"pod", "a:b:c:d", apierrors.BadRequest, 0}, {"pod", "none", apierrors.NotFound, 0},
		{"pod", "unbound", apierrors.BadRequest, 0},
		{"service", "s:web", "", 8080}, {"service", "s:80", "", 8080}, {"service", "s", apierrors.ServiceUnavailable, 0},
		{"service", "s:other", apierrors.ServiceUnavailable, 0}, {"service", "s:82", apierrors.ServiceUnavailable, 0},
		{"service", "s:99", apierrors.ServiceUnavailable, 0}, {"service", "none", apierrors.NotFound, 0},
		{"service", "ftp:s:web", apierrors.BadRequest, 0},
	} {
		var code int32
		var err error
		in := &corev1.ProxyInput{End: true}
		if x.kind == "pod" {
			stream, e := admin.Pods.Proxy(ctx(t))
			code, err = proxied(stream, e, &corev1rpc.ProxyPodRequest{Namespace: "default", Name: x.name, Input: in})
		} else {
			stream, e := admin.Services.Proxy(ctx(t))
			code, err = proxied(stream, e, &corev1rpc.ProxyServiceRequest{Namespace: "default", Name: x.name, Input: in})
		}
		var want []string
		if x.want == "" {
			want = []string{fmt.Sprint("n1 ", a.Metadata.Uid, " ", x.port)}
		}
		if x.want == "" && (err != nil || code != 204) || x.want != "" && !apierrors.Is(err, x.want) {
			t.Errorf("%s %s: %d, %v; want %q", x.kind, x.name, code, err, x.want)
		}
		if asked := f.take(); !slices.Equal(asked, want) {
			t.Errorf("%s %s: agents were asked for %q, want %q", x.kind, x.name, asked, want)
		}
	}
	must(setPhase(t, c.agent("n1"), a, "Succeeded"))(t)
	stream, err := admin.Pods.Proxy(ctx(t))
	_, err = proxied(stream, err, &corev1rpc.ProxyPodRequest{Namespace: "default", Name: "a",
		Input: &corev1.ProxyInput{}})
	if !apierrors.Is(err, apierrors.Conflict) {
		t.Errorf("a pod that has ended: %v", err)
	}
}
