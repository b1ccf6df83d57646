package ingress

import (
	"crypto/tls"
	"fmt"
	"testing"

	metav1 "monoplane.dev/api/meta/v1"
	networkingv1 "monoplane.dev/api/networking/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/controllers/ingress/front"
)

// What it costs to make the routes of 1 000 Ingresses of ten paths each.
func BenchmarkRoutes(b *testing.B) {
	var all []*networkingv1.Ingress
	prefix := "Prefix"
	for n := range 1000 {
		http := &networkingv1.HTTPIngressRuleValue{}
		for p := range 10 {
			http.Paths = append(http.Paths, &networkingv1.HTTPIngressPath{
				Path: fmt.Sprintf("/part-%d/of/it", p), PathType: &prefix,
				Backend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web"}},
			})
		}
		all = append(all, &networkingv1.Ingress{
			Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("i", n)},
			Spec: &networkingv1.IngressSpec{Rules: []*networkingv1.IngressRule{{
				Host: fmt.Sprintf("host-%d.example", n), IngressRuleValue: &networkingv1.IngressRuleValue{Http: http},
			}}},
		})
	}
	backend := &front.Backend{}
	b.ReportAllocs()
	for b.Loop() {
		c := compiler{backend: func(cache.Key, port) (*front.Backend, string) { return backend, "" }}
		if _, problems := c.compile(all, &tls.Certificate{}); len(problems) > 0 {
			b.Fatal(problems)
		}
	}
}
