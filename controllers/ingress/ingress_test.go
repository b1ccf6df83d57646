package ingress_test

import (
	"crypto/x509"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	discoveryv1 "monoplane.dev/api/discovery/v1"
	discoveryv1rpc "monoplane.dev/api/discovery/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	networkingv1 "monoplane.dev/api/networking/v1"
	networkingv1rpc "monoplane.dev/api/networking/v1/rpc"
	"monoplane.dev/object"
)

// Requests go where rules say, from the moment that status says where they may arrive, and follow every change.
func TestRequestsFollowObjects(t *testing.T) {
	inWorld(t, func(w *world) {
		w.service("ns", "web", "10.0.0.1")
		w.service("ns", "api", "10.0.0.2")
		w.wants("http://web.example/", "404")
		i := w.ingress("ns", "one", &networkingv1.IngressSpec{
			Rules:          []*networkingv1.IngressRule{rule("web.example", "/", "web"), rule("web.example", "/api", "api")},
			DefaultBackend: backend("web"),
		})
		if i.GetSpec().GetIngressClassName() != "monoplane" {
			w.Errorf("the class is %q", i.GetSpec().GetIngressClassName())
		}
		w.wants("http://web.example/x", "200 web at 10.0.0.1")
		w.wants("http://web.example/api/x", "200 api at 10.0.0.2")
		w.wants("http://elsewhere.example/", "200 web at 10.0.0.1")
		live, err := w.c.Ingresses.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: "one"})
		w.must(err)
		at := live.GetStatus().GetLoadBalancer().GetIngress()
		if len(at) != 1 || at[0].GetIp() != "192.0.2.1" || len(at[0].GetPorts()) != 2 ||
			at[0].GetPorts()[1].GetPort() != 443 {
			w.Errorf("status: %v", at)
		}

		// Endpoints change: one is not ready, then all are gone, then one comes.
		slice, err := w.c.EndpointSlices.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: "web-1"})
		w.must(err)
		for _, step := range []struct {
			endpoints []*discoveryv1.Endpoint
			want      string
		}{
			{[]*discoveryv1.Endpoint{
				{Addresses: []string{"10.0.0.1"}, Conditions: &discoveryv1.EndpointConditions{Ready: proto.Bool(false)}},
				{Addresses: []string{"10.0.0.3"}},
			}, "200 web at 10.0.0.3"},
			{[]*discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, Conditions: &discoveryv1.EndpointConditions{
				Ready: proto.Bool(false), Serving: proto.Bool(true), Terminating: proto.Bool(true)}}}, "200 web at 10.0.0.1"},
			{nil, "503"},
			{[]*discoveryv1.Endpoint{
				{Addresses: []string{"10.0.0.9"}}, {Addresses: []string{"10.0.0.3"}},
			}, "200 web at 10.0.0.3"},
		} {
			slice = object.Clone(slice)
			slice.Endpoints = step.endpoints
			w.listen("10.0.0.3", "web")
			slice, err = w.c.EndpointSlices.Update(w.Context(), &discoveryv1rpc.UpdateEndpointSliceRequest{
				Namespace: "ns", Name: "web-1", Object: slice})
			w.must(err)
			w.settle()
			w.wants("http://web.example/x", step.want)
		}

		// The Ingress becomes somebody else's, and is deleted.
		_, err = w.c.IngressClasses.Create(w.Context(), &networkingv1rpc.CreateIngressClassRequest{
			Object: &networkingv1.IngressClass{Metadata: &metav1.ObjectMeta{Name: "theirs"},
				Spec: &networkingv1.IngressClassSpec{Controller: "example.com/theirs"}}})
		w.must(err)
		for _, class := range []string{"theirs", "monoplane"} {
			live, err = w.c.Ingresses.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: "one"})
			w.must(err)
			live = object.Clone(live)
			live.Spec.IngressClassName = proto.String(class)
			_, err = w.c.Ingresses.Update(w.Context(), &networkingv1rpc.UpdateIngressRequest{
				Namespace: "ns", Name: "one", Object: live})
			w.must(err)
			w.settle()
			live, err = w.c.Ingresses.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: "one"})
			w.must(err)
			if n := len(live.GetStatus().GetLoadBalancer().GetIngress()); n != 1 && class == "monoplane" ||
				n != 0 && class == "theirs" {
				w.Errorf("of class %s: %v", class, live.GetStatus())
			}
			w.wants("http://web.example/api", map[string]string{"theirs": "404", "monoplane": "200"}[class])
		}
		_, err = w.c.Ingresses.Delete(w.Context(), &metav1.DeleteRequest{Namespace: "ns", Name: "one"})
		w.must(err)
		w.settle()
		w.wants("http://web.example/api", "404")
	})
}

// Certificates are chosen by the name that the client asks for, and follow their Secrets.
func TestCertificates(t *testing.T) {
	inWorld(t, func(w *world) {
		w.service("ns", "web", "10.0.0.1")
		w.ingress("ns", "one", &networkingv1.IngressSpec{
			Rules: []*networkingv1.IngressRule{rule("", "/", "web"), rule("d.example", "/", "web")},
			Tls: []*networkingv1.IngressTLS{
				{Hosts: []string{"a.example"}, SecretName: "a"}, {Hosts: []string{"*.example"}, SecretName: "wild"},
			},
		})
		shown := func(host string) *x509.Certificate {
			w.Helper()
			text, c := w.get("https://" + host + "/")
			if !strings.HasPrefix(text, "200 web") {
				w.Errorf("%s: %s", host, text)
			}
			return c
		}
		const byDefault = "Monoplane Ingress default certificate"
		first := shown("a.example")
		if first.Subject.CommonName != byDefault {
			w.Errorf("without a Secret, %s is shown", first.Subject)
		}
		if text := w.events("one"); strings.Count(text, "TLSSecretNotUsed") != 2 || !strings.Contains(text, "ns/wild") {
			w.Errorf("events: %q", text)
		}
		a, wild := w.secret("a"), w.secret("wild")
		for host, want := range map[string]*x509.Certificate{
			"a.example": a, "b.example": wild, "c.b.example": first, "elsewhere": first,
		} {
			if !shown(host).Equal(want) {
				w.Errorf("%s is shown another certificate", host)
			}
		}
		renewed := w.secret("a")
		if got := shown("a.example"); got.Equal(a) || !got.Equal(renewed) {
			w.Error("a renewed certificate is not shown")
		}
		_, err := w.c.Secrets.Delete(w.Context(), &metav1.DeleteRequest{Namespace: "ns", Name: "a"})
		w.must(err)
		w.settle()
		if !shown("a.example").Equal(wild) {
			w.Error("a certificate is shown whose Secret is gone")
		}
	})
}

// Of what two Ingresses say the older one counts, and the younger learns of it; what is not served has an event, too.
func TestConflictsAndRefusals(t *testing.T) {
	inWorld(t, func(w *world) {
		w.service("ns", "web", "10.0.0.1")
		w.service("other", "web", "10.0.0.2")
		all := rule("a.example", "/", "web")
		w.ingress("other", "older", &networkingv1.IngressSpec{Rules: []*networkingv1.IngressRule{all}})
		w.settle()
		bucket := rule("c.example", "/", "")
		path := bucket.IngressRuleValue.Http.Paths[0]
		path.PathType, path.Backend = proto.String("Exact"), &networkingv1.IngressBackend{
			Resource: &corev1.TypedLocalObjectReference{Kind: "Bucket", Name: "pictures"},
		}
		w.ingress("ns", "newer", &networkingv1.IngressSpec{Rules: []*networkingv1.IngressRule{
			rule("a.example", "/ns", "web"), rule("b.example", "/", "named"), bucket,
		}})
		w.ingress("ns", "newest", &networkingv1.IngressSpec{Rules: []*networkingv1.IngressRule{all}})
		_, err := w.c.Services.Create(w.Context(), &corev1rpc.CreateServiceRequest{Object: &corev1.Service{
			Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "named"},
			Spec:     &corev1.ServiceSpec{Type: "ExternalName", ExternalName: "localhost"},
		}})
		w.must(err)
		w.settle()
		w.wants("http://a.example/", "200 web at 10.0.0.2")
		w.wants("http://a.example/ns/x", "200 web at 10.0.0.1")
		w.wants("http://b.example/", "503")
		w.wants("http://c.example/", "503")
		w.wants("http://c.example/x", "404")
		if text := w.events("newer"); strings.Count(text, "BackendNotServed") != 2 ||
			!strings.Contains(text, "ExternalName") || !strings.Contains(text, `Bucket "pictures"`) {
			w.Errorf("events: %q", text)
		}
		if text := w.events("newest"); !strings.Contains(text, "RuleConflict: spec.rules[0].http.paths[0]: ") ||
			!strings.Contains(text, "other/older") {
			w.Errorf("events: %q", text)
		}
		if text := w.events("older"); text != "" {
			w.Errorf("events of the older one: %q", text)
		}
		// The older one goes, and what it had is the younger's.
		_, err = w.c.Ingresses.Delete(w.Context(), &metav1.DeleteRequest{Namespace: "other", Name: "older"})
		w.must(err)
		w.settle()
		w.wants("http://a.example/", "200 web at 10.0.0.1")
	})
}

// Only Ingresses of classes of this controller are served, by the field or the old annotation.
func TestClasses(t *testing.T) {
	inWorld(t, func(w *world) {
		w.service("ns", "web", "10.0.0.1")
		for name, of := range map[string]string{"mine": "monoplane.dev/ingress", "theirs": "example.com/other"} {
			_, err := w.c.IngressClasses.Create(w.Context(), &networkingv1rpc.CreateIngressClassRequest{
				Object: &networkingv1.IngressClass{
					Metadata: &metav1.ObjectMeta{Name: name}, Spec: &networkingv1.IngressClassSpec{Controller: of},
				}})
			w.must(err)
		}
		for _, class := range []string{"mine", "theirs", "none", "monoplane"} {
			for _, annotated := range []bool{false, true} {
				host := fmt.Sprintf("%s-%t.example", class, annotated)
				i := &networkingv1.Ingress{
					Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: host},
					Spec:     &networkingv1.IngressSpec{Rules: []*networkingv1.IngressRule{rule(host, "/", "web")}},
				}
				if annotated {
					i.Metadata.Annotations = map[string]string{"kubernetes.io/ingress.class": class}
				} else {
					i.Spec.IngressClassName = proto.String(class)
				}
				_, err := w.c.Ingresses.Create(w.Context(), &networkingv1rpc.CreateIngressRequest{Object: i})
				w.must(err)
				w.settle()
				want := "404"
				if class == "mine" || class == "monoplane" {
					want = "200"
				}
				w.wants("http://"+host+"/", want)
			}
		}
	})
}

// Several servers of one etcd each say where they are, and a class that somebody has changed stays as it is.
func TestRestart(t *testing.T) {
	inWorld(t, func(w *world) {
		w.service("ns", "web", "10.0.0.1")
		w.ingress("ns", "one", &networkingv1.IngressSpec{DefaultBackend: backend("web")})
		class, err := w.c.IngressClasses.Get(w.Context(), &metav1.GetRequest{Name: "monoplane"})
		w.must(err)
		class = object.Clone(class)
		class.Metadata.Annotations = nil
		_, err = w.c.IngressClasses.Update(w.Context(), &networkingv1rpc.UpdateIngressClassRequest{
			Name: "monoplane", Object: class})
		w.must(err)
		live, err := w.c.Ingresses.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: "one"})
		w.must(err)
		live = object.Clone(live)
		live.Status.LoadBalancer.Ingress = []*networkingv1.IngressLoadBalancerIngress{{Ip: "192.0.2.9"}}
		_, err = w.c.Ingresses.UpdateStatus(w.Context(), &networkingv1rpc.UpdateIngressRequest{
			Namespace: "ns", Name: "one", Object: live})
		w.must(err)
		w.stop()
		w.start(true)
		w.wants("http://any/", "200 web")
		live, err = w.c.Ingresses.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: "one"})
		w.must(err)
		// Both the first server and the second one have written 192.0.2.1.
		if at := live.GetStatus().GetLoadBalancer().GetIngress(); len(at) == 0 || at[0].GetIp() != "192.0.2.1" {
			w.Errorf("status: %v", at)
		}
		class, err = w.c.IngressClasses.Get(w.Context(), &metav1.GetRequest{Name: "monoplane"})
		w.must(err)
		if len(class.GetMetadata().GetAnnotations()) > 0 {
			w.Errorf("the class is %v", class)
		}
	})
}
