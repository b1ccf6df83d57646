package service

import (
	"fmt"
	"slices"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	utilnet "k8s.io/utils/net"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
)

// Annotations that say what fields say, too.
const (
	topologyHints = "service.kubernetes.io/topology-aware-hints"
	topologyMode  = "service.kubernetes.io/topology-mode"
	sourceRanges  = "service.beta.kubernetes.io/load-balancer-source-ranges"
)

// clientIP is the session affinity by which a client stays with a pod.
const clientIP = "ClientIP"

// onlyLoadBalancer is said of a field that other types have no use for.
const onlyLoadBalancer = "may only be used when `type` is 'LoadBalancer'"

// Validate checks a Service that is to be created, after it was given its addresses and ports.
func Validate(s *corev1.Service) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(s.GetMetadata(), nil, true, validation.NameIsLabel)
		check(f, s, nil)
	}
	return f.Causes()
}

// ValidateUpdate checks that a change of a Service is allowed, after it was given its addresses and ports.
func ValidateUpdate(new, old *corev1.Service) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(new.GetMetadata(), old.GetMetadata(), true, validation.NameIsLabel)
		checkAddressesKept(f, specOf(new), specOf(old))
		checkFamiliesKept(f, specOf(new), specOf(old))
		checkClassKept(f, specOf(new), specOf(old))
		if healthChecked(specOf(old)) && healthChecked(specOf(new)) &&
			new.GetSpec().GetHealthCheckNodePort() != old.GetSpec().GetHealthCheckNodePort() {
			f.Forbidden(f.Root("spec").Child("healthCheckNodePort"), validation.Immutable)
		}
		check(f, new, old)
	}
	return f.Causes()
}

// ValidateStatusUpdate checks a change of a Service's status.
func ValidateStatusUpdate(new, old *corev1.Service) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.ObjectMetaUpdate(new.GetMetadata(), old.GetMetadata())
		list, p := new.GetStatus().GetLoadBalancer().GetIngress(), f.Root("status").Child("loadBalancer").Child("ingress")
		if len(list) > 0 && specOf(new).GetType() != LoadBalancer {
			f.Forbidden(p, "may only be used when `spec.type` is 'LoadBalancer'")
			continue
		}
		var known []string
		for _, at := range old.GetStatus().GetLoadBalancer().GetIngress() {
			known = append(known, at.GetIp())
		}
		for i, at := range list {
			checkIngress(f, p.Index(i), at, known)
		}
	}
	return f.Causes()
}

// checkIngress checks an address of a load balancer.
func checkIngress(f *validation.Faults, p *validation.Path, at *corev1.LoadBalancerIngress, known []string) {
	if ip := at.GetIp(); ip != "" && !slices.Contains(known, ip) {
		f.IP(p.Child("ip"), ip)
	}
	mode := p.Child("ipMode")
	switch {
	case at == nil:
	case at.IpMode == nil && at.GetIp() != "":
		f.Required(mode, "must be specified when `ip` is set")
	case at.IpMode != nil && at.GetIp() == "":
		f.Forbidden(mode, "may not be specified when `ip` is not set")
	case at.IpMode != nil:
		f.OneOf(mode, *at.IpMode, "Proxy", "VIP")
	}
	if name := at.GetHostname(); name != "" {
		f.Subdomain(p.Child("hostname"), name)
		if utilnet.ParseIPSloppy(name) != nil {
			f.Invalid(p.Child("hostname"), name, "must be a DNS name, not an IP address")
		}
	}
}

func check(f *validation.Faults, o, old *corev1.Service) {
	checkTopology(f, o)
	s, was, p := specOf(o), specOf(old), f.Root("spec")
	if len(s.GetPorts()) == 0 && !headless(s) && s.GetType() != ExternalName {
		f.Required(p.Child("ports"), "")
	}
	checkType(f, p, s)
	checkPorts(f, p.Child("ports"), s)
	f.Labels(p.Child("selector"), s.GetSelector())
	checkAffinity(f, p, s)
	checkAddresses(f, p, s, was)
	for i, ip := range s.GetExternalIPs() {
		checkExternalIP(f, p.Child("externalIPs").Index(i), ip, was.GetExternalIPs())
	}
	checkSources(f, o, old)
	switch {
	case s.AllocateLoadBalancerNodePorts != nil && s.GetType() != LoadBalancer:
		f.Forbidden(p.Child("allocateLoadBalancerNodePorts"), onlyLoadBalancer)
	case s.AllocateLoadBalancerNodePorts == nil && s.GetType() == LoadBalancer:
		f.Required(f.Root("allocateLoadBalancerNodePorts"), "") // the path is Kubernetes'
	}
	checkClass(f, p, s)
	checkPolicies(f, p, s)
}

func checkTopology(f *validation.Faults, o *corev1.Service) {
	a := o.GetMetadata().GetAnnotations()
	hints, old := a[topologyHints]
	if mode, ok := a[topologyMode]; ok && old && mode != hints {
		f.Invalid(f.Root("metadata").Child("annotations").Key(topologyMode), mode,
			"must match annotations["+topologyHints+"] when both are specified")
	}
}

// checkType checks what depends on the type alone.
func checkType(f *validation.Faults, p *validation.Path, s *corev1.ServiceSpec) {
	f.RequiredOneOf(p.Child("type"), s.GetType(), ClusterIP, ExternalName, LoadBalancer, NodePort)
	switch s.GetType() {
	case LoadBalancer, NodePort:
		if headless(s) {
			f.Invalid(p.Child("clusterIPs").Index(0), None, "may not be set to 'None' for "+s.GetType()+" services")
		}
	case ExternalName:
		const not = "may not be set for ExternalName services"
		if len(s.GetClusterIPs()) > 0 {
			f.Forbidden(p.Child("clusterIPs"), not)
		}
		if len(s.GetIpFamilies()) > 0 {
			f.Forbidden(p.Child("ipFamilies"), not)
		}
		if s.IpFamilyPolicy != nil {
			f.Forbidden(p.Child("ipFamilyPolicy"), not)
		}
		if name := strings.TrimSuffix(s.GetExternalName(), "."); name != "" {
			f.Subdomain(p.Child("externalName"), name)
		} else {
			f.Required(p.Child("externalName"), "")
		}
	}
}

func checkPorts(f *validation.Faults, p *validation.Path, s *corev1.ServiceSpec) {
	type pair struct {
		protocol string
		port     int32
	}
	names := map[string]bool{}
	given, ports := map[pair]bool{}, map[pair]bool{}
	for i, port := range s.GetPorts() {
		at := p.Index(i)
		checkPort(f, at, port, len(s.GetPorts()) > 1, names)
		if n := port.GetNodePort(); n != 0 {
			if s.GetType() == ClusterIP {
				f.Forbidden(at.Child("nodePort"), "may not be used when `type` is 'ClusterIP'")
			}
			if key := (pair{port.GetProtocol(), n}); given[key] {
				f.Duplicate(at.Child("nodePort"), n)
			} else {
				given[key] = true
			}
		}
		key := pair{port.GetProtocol(), port.GetPort()}
		if ports[key] {
			f.Duplicate(at, struct {
				Protocol string `json:"protocol"`
				Port     int32  `json:"port"`
			}{key.protocol, key.port})
		}
		ports[key] = true
	}
}

func checkPort(
	f *validation.Faults, p *validation.Path, port *corev1.ServicePort, named bool, names map[string]bool,
) {
	switch name := port.GetName(); {
	case name == "" && named:
		f.Required(p.Child("name"), "")
	case name != "":
		f.Label(p.Child("name"), name)
		if names[name] {
			f.Duplicate(p.Child("name"), name)
		}
		names[name] = true
	}
	checkNumber(f, p.Child("port"), port.GetPort())
	f.RequiredOneOf(p.Child("protocol"), port.GetProtocol(), "SCTP", "TCP", "UDP")
	switch at, t := p.Child("targetPort"), port.GetTargetPort(); t.GetType() {
	case 0:
		checkNumber(f, at, t.GetIntVal())
	default:
		f.Invalid(at, t.GetStrVal(), validation.WrongPortName(t.GetStrVal())...)
	}
	if port != nil && port.AppProtocol != nil {
		f.Qualified(p.Child("appProtocol"), *port.AppProtocol)
	}
}

// checkNumber checks the number of a port.
func checkNumber(f *validation.Faults, p *validation.Path, n int32) {
	if wrong := utilvalidation.IsValidPortNum(int(n)); len(wrong) > 0 {
		f.InvalidValue(p, n, wrong...)
	}
}

func checkAffinity(f *validation.Faults, p *validation.Path, s *corev1.ServiceSpec) {
	f.RequiredOneOf(p.Child("sessionAffinity"), s.GetSessionAffinity(), clientIP, "None")
	c, p := s.GetSessionAffinityConfig(), p.Child("sessionAffinityConfig")
	const longest = 86_400
	switch {
	case s.GetSessionAffinity() == "None" && c != nil:
		f.Forbidden(p, "must not be set when session affinity is None")
	case s.GetSessionAffinity() != clientIP:
	case c == nil:
		f.Required(p, "when session affinity type is ClientIP")
	case c.GetClientIP() == nil:
		f.Required(p.Child("clientIP"), "when session affinity type is ClientIP")
	case c.ClientIP.TimeoutSeconds == nil:
		f.Required(p.Child("clientIP").Child("timeoutSeconds"), "when session affinity type is ClientIP")
	case *c.ClientIP.TimeoutSeconds <= 0 || *c.ClientIP.TimeoutSeconds > longest:
		f.InvalidValue(p.Child("clientIP").Child("timeoutSeconds"), *c.ClientIP.TimeoutSeconds,
			fmt.Sprintf("must be greater than 0 and less than %d", longest))
	}
}

// checkExternalIP checks an address that nodes are to accept traffic for. One that was there is not judged anew for
// how it is written.
func checkExternalIP(f *validation.Faults, p *validation.Path, text string, known []string) {
	if !slices.Contains(known, text) {
		before := f.Count()
		if f.IP(p, text); f.Count() > before {
			return
		}
	}
	f.EndpointIP(p, text)
}

// checkSources checks from where a load balancer accepts traffic, which a field or an annotation says.
func checkSources(f *validation.Faults, o, old *corev1.Service) {
	s := specOf(o)
	if list := s.GetLoadBalancerSourceRanges(); len(list) > 0 {
		p := f.Root("spec").Child("LoadBalancerSourceRanges") // the path is Kubernetes'
		if s.GetType() != LoadBalancer {
			f.Forbidden(p, onlyLoadBalancer)
		}
		var known []string
		for _, text := range specOf(old).GetLoadBalancerSourceRanges() {
			known = append(known, strings.TrimSpace(text))
		}
		for i, text := range list {
			checkSource(f, p.Index(i), strings.TrimSpace(text), known)
		}
		return
	}
	text, ok := o.GetMetadata().GetAnnotations()[sourceRanges]
	if !ok {
		return
	}
	p := f.Root("metadata").Child("annotations").Key(sourceRanges)
	if s.GetType() != LoadBalancer {
		f.Forbidden(p, onlyLoadBalancer)
	}
	was, had := old.GetMetadata().GetAnnotations()[sourceRanges]
	if had && was == text || strings.TrimSpace(text) == "" {
		return
	}
	for _, part := range strings.Split(text, ",") {
		checkSource(f, p, strings.TrimSpace(part), nil)
	}
}

func checkSource(f *validation.Faults, p *validation.Path, text string, known []string) {
	for _, e := range utilvalidation.IsValidCIDRForLegacyField(nil, text, true, known) {
		f.Add(p, e)
	}
}

// checkClass checks which load balancer is meant.
func checkClass(f *validation.Faults, p *validation.Path, s *corev1.ServiceSpec) {
	switch p := p.Child("loadBalancerClass"); {
	case s.LoadBalancerClass == nil:
	case s.GetType() == LoadBalancer:
		f.Qualified(p, *s.LoadBalancerClass)
	default:
		f.Forbidden(p, onlyLoadBalancer)
	}
}

func checkClassKept(f *validation.Faults, new, old *corev1.ServiceSpec) {
	if old.GetType() == LoadBalancer && new.GetType() == LoadBalancer &&
		!validation.Same(old.LoadBalancerClass, new.LoadBalancerClass) {
		f.InvalidValue(f.Root("spec").Child("loadBalancerClass"), textOf(new.LoadBalancerClass), "may not change once set")
	}
}

// textOf is the text of a fault's value, nothing at all when it is absent.
func textOf(s *string) any {
	if s == nil {
		return nil
	}
	return *s
}

// checkPolicies checks which pods get the traffic.
func checkPolicies(f *validation.Faults, p *validation.Path, s *corev1.ServiceSpec) {
	switch p := p.Child("externalTrafficPolicy"); {
	case external(s):
		f.RequiredOneOf(p, s.GetExternalTrafficPolicy(), "Cluster", "Local")
	case s.GetExternalTrafficPolicy() != "":
		f.Invalid(p, s.GetExternalTrafficPolicy(), "may only be set for externally-accessible services")
	}
	switch p := p.Child("healthCheckNodePort"); {
	case !healthChecked(s) && s.GetHealthCheckNodePort() != 0:
		f.InvalidValue(p, s.GetHealthCheckNodePort(),
			"may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'")
	case !healthChecked(s):
	case s.GetHealthCheckNodePort() == 0:
		f.Required(p, "")
	default:
		checkNumber(f, p, s.GetHealthCheckNodePort())
	}
	switch p := p.Child("internalTrafficPolicy"); {
	case s.InternalTrafficPolicy != nil:
		f.OneOf(p, *s.InternalTrafficPolicy, "Cluster", "Local")
	case s.GetType() == ClusterIP || nodePorts(s):
		f.Required(p, "")
	}
	if s.TrafficDistribution != nil {
		f.OneOf(p.Child("trafficDistribution"), *s.TrafficDistribution, "PreferClose", "PreferSameZone", "PreferSameNode")
	}
}
