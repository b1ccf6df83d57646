package apiserver_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver"
	"monoplane.dev/apiserver/warning"

	metav1 "monoplane.dev/api/meta/v1"
	networkingv1 "monoplane.dev/api/networking/v1"
	networkingv1rpc "monoplane.dev/api/networking/v1/rpc"
)

func newIngress(name string) *networkingv1.Ingress {
	prefix := "Prefix"
	return &networkingv1.Ingress{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: &networkingv1.IngressSpec{Rules: []*networkingv1.IngressRule{{
			Host: "example.com",
			IngressRuleValue: &networkingv1.IngressRuleValue{Http: &networkingv1.HTTPIngressRuleValue{
				Paths: []*networkingv1.HTTPIngressPath{{Path: "/", PathType: &prefix, Backend: &networkingv1.IngressBackend{
					Service: &networkingv1.IngressServiceBackend{
						Name: "web", Port: &networkingv1.ServiceBackendPort{Number: 80},
					},
				}}},
			}},
		}}},
	}
}

func TestIngressesHaveAClass(t *testing.T) {
	conn := start(t).admin().conn
	ingresses, classes := networkingv1rpc.NewIngressesClient(conn), networkingv1rpc.NewIngressClassesClient(conn)
	none := must(ingresses.Create(ctx(t), &networkingv1rpc.CreateIngressRequest{Object: newIngress("none")}))(t)
	if none.Spec.IngressClassName != nil || none.Metadata.Generation != 1 {
		t.Errorf("without a class: %v", none)
	}
	class := &networkingv1.IngressClass{
		Metadata: &metav1.ObjectMeta{
			Name: "mine", Annotations: map[string]string{"ingressclass.kubernetes.io/is-default-class": "true"},
		},
		Spec: &networkingv1.IngressClassSpec{Controller: "example.com/ingress"},
	}
	class = must(classes.Create(ctx(t), &networkingv1rpc.CreateIngressClassRequest{Object: class}))(t)
	var header metadata.MD
	made := must(ingresses.Create(ctx(t), &networkingv1rpc.CreateIngressRequest{Object: newIngress("a")},
		grpc.Header(&header)))(t)
	if made.Spec.GetIngressClassName() != "mine" ||
		!strings.Contains(strings.Join(header.Get(warning.MetadataKey), "\n"), "nothing serves Ingresses here") {
		t.Errorf("with a default class: %v, %v", made, header)
	}
	elsewhere := networkingv1rpc.NewIngressesClient(start(t, func(c *apiserver.Config) { c.Ingress = true }).admin().conn)
	var silent metadata.MD
	must(elsewhere.Create(ctx(t), &networkingv1rpc.CreateIngressRequest{Object: newIngress("a")},
		grpc.Header(&silent)))(t)
	if said := silent.Get(warning.MetadataKey); len(said) > 0 {
		t.Errorf("where Ingresses are served: %q", said)
	}
	changed := clone(class)
	changed.Spec.Controller = "example.com/other"
	_, err := classes.Update(ctx(t), &networkingv1rpc.UpdateIngressClassRequest{Object: changed})
	wants(t, err, apierrors.Invalid, "spec.controller: Invalid value: \"example.com/other\": field is immutable")
	bad := newIngress("bad")
	bad.Spec.Rules[0].Host = "10.0.0.1"
	bad.Spec.Rules[0].IngressRuleValue.Http.Paths[0].Path = "a"
	_, err = ingresses.Create(ctx(t), &networkingv1rpc.CreateIngressRequest{Object: bad})
	wants(t, err, apierrors.Invalid, "must be a DNS name, not an IP address")
	wants(t, err, apierrors.Invalid, "spec.rules[0].http.paths[0].path: Invalid value: \"a\": must be an absolute path")

	made = clone(made)
	made.Status = &networkingv1.IngressStatus{LoadBalancer: &networkingv1.IngressLoadBalancerStatus{
		Ingress: []*networkingv1.IngressLoadBalancerIngress{{Ip: "192.0.2.1"}},
	}}
	made.Spec.Rules = nil
	served := must(ingresses.UpdateStatus(ctx(t), &networkingv1rpc.UpdateIngressRequest{Object: made}))(t)
	if len(served.Spec.Rules) != 1 || served.Status.LoadBalancer.Ingress[0].Ip != "192.0.2.1" {
		t.Errorf("status: %v", served)
	}
}

func TestNetworkPolicies(t *testing.T) {
	policies := networkingv1rpc.NewNetworkPoliciesClient(start(t).admin().conn)
	p := &networkingv1.NetworkPolicy{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "p"},
		Spec: &networkingv1.NetworkPolicySpec{Egress: []*networkingv1.NetworkPolicyEgressRule{{
			Ports: []*networkingv1.NetworkPolicyPort{{Port: &metav1.IntOrString{IntVal: 53}}},
			To: []*networkingv1.NetworkPolicyPeer{{IpBlock: &networkingv1.IPBlock{
				Cidr: "10.0.0.0/8", Except: []string{"10.1.0.0/16"},
			}}},
		}}},
	}
	var header metadata.MD
	made := must(policies.Create(ctx(t), &networkingv1rpc.CreateNetworkPolicyRequest{Object: p}, grpc.Header(&header)))(t)
	if s := made.Spec; strings.Join(s.PolicyTypes, ",") != "Ingress,Egress" || s.PodSelector == nil ||
		s.Egress[0].Ports[0].GetProtocol() != "TCP" || len(header.Get(warning.MetadataKey)) != 1 {
		t.Errorf("created: %v, %v", made, header)
	}
	made = clone(made)
	made.Spec.Egress[0].To[0].IpBlock.Except = []string{"11.0.0.0/16"}
	_, err := policies.Update(ctx(t), &networkingv1rpc.UpdateNetworkPolicyRequest{Object: made})
	wants(t, err, apierrors.Invalid, "spec.egress[0].to[0].ipBlock.except[0]: Invalid value: \"11.0.0.0/16\": "+
		"must be a strict subset of `cidr`")
}

// spec: OBJ-3
func TestServiceCIDRs(t *testing.T) {
	ranges := networkingv1rpc.NewServiceCIDRsClient(start(t).admin().conn)
	made := must(ranges.Create(ctx(t), &networkingv1rpc.CreateServiceCIDRRequest{Object: &networkingv1.ServiceCIDR{
		Metadata: &metav1.ObjectMeta{Name: "more"}, Spec: &networkingv1.ServiceCIDRSpec{Cidrs: []string{"192.0.2.0/24"}},
		Status: &networkingv1.ServiceCIDRStatus{Conditions: []*metav1.Condition{{Type: "Ready"}}},
	}}))(t)
	if len(made.Status.Conditions) > 0 || made.Metadata.Generation != 0 {
		t.Errorf("created: %v", made)
	}
	ready := clone(made)
	ready.Spec.Cidrs, ready.Metadata.Labels = nil, map[string]string{"a": "b"}
	ready.Status.Conditions = []*metav1.Condition{{Type: "Ready", Status: "True"}}
	made = must(ranges.UpdateStatus(ctx(t), &networkingv1rpc.UpdateServiceCIDRRequest{Object: ready}))(t)
	if len(made.Status.Conditions) != 1 || len(made.Spec.Cidrs) != 1 || len(made.Metadata.Labels) > 0 {
		t.Errorf("the status: %v", made)
	}
	both := clone(made)
	both.Spec.Cidrs, both.Status = append(both.Spec.Cidrs, "2001:db8::/64"), nil
	both = must(ranges.Update(ctx(t), &networkingv1rpc.UpdateServiceCIDRRequest{Object: both}))(t)
	if len(both.Spec.Cidrs) != 2 || len(both.Status.Conditions) != 1 {
		t.Errorf("of two families: %v", both)
	}
	one := clone(both)
	one.Spec.Cidrs = one.Spec.Cidrs[:1]
	_, err := ranges.Update(ctx(t), &networkingv1rpc.UpdateServiceCIDRRequest{Object: one})
	wants(t, err, apierrors.Invalid, "spec.cidrs: Invalid value: [\"192.0.2.0/24\"]: field is immutable")
}

// spec: OBJ-3
func TestIPAddresses(t *testing.T) {
	addresses := networkingv1rpc.NewIPAddressesClient(start(t).admin().conn)
	address := func(name string) *networkingv1rpc.CreateIPAddressRequest {
		return &networkingv1rpc.CreateIPAddressRequest{Object: &networkingv1.IPAddress{
			Metadata: &metav1.ObjectMeta{Name: name},
			Spec: &networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{
				Resource: "services", Namespace: "default", Name: "web",
			}},
		}}
	}
	made := must(addresses.Create(ctx(t), address("2001:db8::1")))(t)
	other := clone(made)
	other.Spec.ParentRef.Name = "db"
	_, err := addresses.Update(ctx(t), &networkingv1rpc.UpdateIPAddressRequest{Object: other})
	wants(t, err, apierrors.Invalid, "\"name\":\"db\"}: field is immutable")
	_, err = addresses.Create(ctx(t), address("2001:DB8::1"))
	wants(t, err, apierrors.Invalid, "must be in canonical form (\"2001:db8::1\")")
}
