// Package discovery describes the kinds of discovery.k8s.io.
package discovery

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilnet "k8s.io/utils/net"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/object/builtin"
	"monoplane.dev/rules/semantic"

	discoveryv1 "monoplane.dev/api/discovery/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// What the addresses of a slice can be.
const (
	ipv4 = "IPv4"
	ipv6 = "IPv6"
	fqdn = "FQDN"
)

// serviceName is the label that says whose endpoints a slice has.
const serviceName = "kubernetes.io/service-name"

// What a slice can have at most.
const (
	maxPorts     = 20000
	maxEndpoints = 1000
	maxAddresses = 100
	maxHints     = 8
)

// EndpointSlice describes the kind.
func EndpointSlice(define.Config) define.Definition {
	return define.Definition{Strategy: registry.Typed[*discoveryv1.EndpointSlice]{
		Kind:     discoveryv1.EndpointSliceKind,
		Spec:     counted,
		Default:  DefaultEndpointSlice,
		Validate: ValidateEndpointSlice,
		Warn: func(next, live *discoveryv1.EndpointSlice) (w validation.Warnings) {
			if next.GetAddressType() == fqdn {
				if live == nil {
					w.Say("spec.addressType: FQDN endpoints are deprecated")
				}
				return w
			}
			for i, e := range next.GetEndpoints() {
				for j, ip := range e.GetAddresses() {
					w.IP(validation.NewPath("endpoints").Index(i).Child("addresses").Index(j), ip)
				}
			}
			return w
		},
		Main: registry.TypedUpdateRules[*discoveryv1.EndpointSlice]{Validate: ValidateEndpointSliceUpdate},
		Table: define.Columns[*discoveryv1.EndpointSlice]{
			define.Text("AddressType", "What the addresses are.", (*discoveryv1.EndpointSlice).GetAddressType),
			define.Text("Ports", "Ports of every endpoint.", shownPorts),
			define.Text("Endpoints", "Addresses of the endpoints.", shownAddresses),
			define.Age[*discoveryv1.EndpointSlice](),
		},
	}.Strategy()}
}

// counted is what the generation of a slice counts the changes of: all but its metadata, of which labels do count,
// because they say whose endpoints these are.
func counted(s *discoveryv1.EndpointSlice) proto.Message {
	return &discoveryv1.EndpointSlice{
		Metadata:  &metav1.ObjectMeta{Labels: s.GetMetadata().GetLabels()},
		Endpoints: s.GetEndpoints(), Ports: s.GetPorts(), AddressType: s.GetAddressType(),
	}
}

// DefaultEndpointSlice fills in a slice.
func DefaultEndpointSlice(s *discoveryv1.EndpointSlice) {
	defaults.Message(&s.Metadata)
	for _, port := range s.GetPorts() {
		if port != nil {
			defaults.SetPtr(&port.Name, "")
			defaults.SetPtr(&port.Protocol, "TCP")
		}
	}
	for _, e := range s.GetEndpoints() {
		if e != nil {
			defaults.Message(&e.Conditions)
			e.DeprecatedTopology = nil
		}
	}
}

// ValidateEndpointSlice checks a slice that is to be created.
func ValidateEndpointSlice(s *discoveryv1.EndpointSlice) []apierrors.Cause { return wrongSlice(s, nil) }

// ValidateEndpointSliceUpdate checks that a change of a slice is allowed. Endpoints that stay as they are are not
// judged again.
func ValidateEndpointSliceUpdate(new, old *discoveryv1.EndpointSlice) []apierrors.Cause {
	return wrongSlice(new, old)
}

func wrongSlice(s, old *discoveryv1.EndpointSlice) []apierrors.Cause {
	kept := old != nil && semantic.Equal(
		&discoveryv1.EndpointSlice{Endpoints: s.GetEndpoints()}, &discoveryv1.EndpointSlice{Endpoints: old.GetEndpoints()})
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(s.GetMetadata(), old.GetMetadata(), true, validation.NameIsSubdomain)
		at := f.Root("addressType")
		f.RequiredOneOf(at, s.GetAddressType(), fqdn, ipv4, ipv6)
		checkPorts(f, f.Root("ports"), s.GetPorts())
		if !kept {
			checkEndpoints(f, f.Root("endpoints"), s)
		}
		if old != nil && s.GetAddressType() != old.GetAddressType() {
			f.Invalid(at, s.GetAddressType(), validation.Immutable)
		}
	}
	return f.Causes()
}

func checkPorts(f *validation.Faults, p *validation.Path, ports []*discoveryv1.EndpointPort) {
	if tooMany(f, p, len(ports), maxPorts) {
		return
	}
	names := make(map[string]bool, len(ports))
	for i, port := range ports {
		at := p.Index(i)
		if port == nil { // as a list in a program may have it
			port = &discoveryv1.EndpointPort{}
		}
		if port.GetName() != "" {
			f.Label(at.Child("name"), port.GetName())
		}
		if names[port.GetName()] {
			f.Duplicate(at.Child("name"), port.GetName())
		}
		names[port.GetName()] = true
		if port.Protocol == nil {
			f.Required(at.Child("protocol"), "")
		} else {
			f.OneOf(at.Child("protocol"), port.GetProtocol(), "SCTP", "TCP", "UDP")
		}
		if port.AppProtocol != nil {
			f.Qualified(at.Child("appProtocol"), port.GetAppProtocol())
		}
	}
}

func checkEndpoints(f *validation.Faults, p *validation.Path, s *discoveryv1.EndpointSlice) {
	if tooMany(f, p, len(s.GetEndpoints()), maxEndpoints) {
		return
	}
	judge := f.EndpointIP
	if m := s.GetMetadata(); m.GetNamespace() == builtin.Default && m.GetLabels()[serviceName] == builtin.API {
		judge = f.ServerIP
	}
	for i, e := range s.GetEndpoints() {
		at := p.Index(i)
		if e == nil {
			e = &discoveryv1.Endpoint{}
		}
		addresses := at.Child("addresses")
		if len(e.GetAddresses()) == 0 {
			f.Required(addresses, "must contain at least 1 address")
		}
		tooMany(f, addresses, len(e.GetAddresses()), maxAddresses)
		for j, text := range e.GetAddresses() {
			checkAddress(f, addresses, addresses.Index(j), s.GetAddressType(), text, judge)
		}
		if e.NodeName != nil {
			f.Subdomain(at.Child("nodeName"), e.GetNodeName())
		}
		if e.Hostname != nil {
			f.Label(at.Child("hostname"), e.GetHostname())
		}
		checkHints(f, at.Child("hints"), e.GetHints())
	}
}

// checkAddress checks an address of a type; one of another type is a fault of the list, as in Kubernetes.
func checkAddress(
	f *validation.Faults, list, at *validation.Path, kind, text string, judge func(*validation.Path, string),
) {
	before := f.Count()
	switch kind {
	case ipv4:
		if f.IP(at, text); f.Count() > before {
			return
		}
		if !utilnet.IsIPv4String(text) {
			f.Invalid(list, text, "must be an IPv4 address")
		}
		judge(at, text)
	case ipv6:
		if f.CanonicalIP(at, text); f.Count() > before {
			return
		}
		if !utilnet.IsIPv6String(text) {
			f.Invalid(list, text, "must be an IPv6 address")
		}
		judge(at, text)
	case fqdn:
		for _, e := range utilvalidation.IsFullyQualifiedDomainName(nil, text) {
			f.Add(at, e)
		}
	}
}

func checkHints(f *validation.Faults, p *validation.Path, h *discoveryv1.EndpointHints) {
	zones := p.Child("forZones")
	if tooMany(f, zones, len(h.GetForZones()), maxHints) {
		return
	}
	var seen []string
	for i, z := range h.GetForZones() {
		at := zones.Index(i).Child("name")
		seen = once(f, at, seen, z.GetName())
		f.Invalid(at, z.GetName(), validation.WrongLabelValue(z.GetName())...)
	}
	nodes := p.Child("forNodes")
	if tooMany(f, nodes, len(h.GetForNodes()), maxHints) {
		return
	}
	seen = nil
	for i, n := range h.GetForNodes() {
		at := nodes.Index(i).Child("name")
		seen = once(f, at, seen, n.GetName())
		f.Subdomain(at, n.GetName())
	}
}

// once refuses a name that was seen before, and returns those that are seen now.
func once(f *validation.Faults, p *validation.Path, seen []string, name string) []string {
	if slices.Contains(seen, name) {
		f.Duplicate(p, name)
		return seen
	}
	return append(seen, name)
}

func tooMany(f *validation.Faults, p *validation.Path, n, most int) bool {
	if n <= most {
		return false
	}
	f.Add(p, field.TooMany(nil, n, most))
	return true
}

// shownPorts are the numbers of the first few ports, or "*" for any.
func shownPorts(s *discoveryv1.EndpointSlice) string {
	list := make([]string, 0, len(s.GetPorts()))
	for _, port := range s.GetPorts() {
		switch {
		case port.Port != nil:
			list = append(list, strconv.Itoa(int(port.GetPort())))
		case port.Name != nil:
			list = append(list, port.GetName())
		default:
			list = append(list, "*")
		}
	}
	return few(list)
}

func shownAddresses(s *discoveryv1.EndpointSlice) string {
	var list []string
	for _, e := range s.GetEndpoints() {
		list = append(list, e.GetAddresses()...)
	}
	return few(list)
}

// few are the first texts of a list, and how many more there are.
func few(list []string) string {
	const most = 3
	text := strings.Join(list[:min(len(list), most)], ",")
	if more := len(list) - most; more > 0 {
		return text + fmt.Sprintf(" + %d more...", more)
	}
	return define.OrUnset(text)
}
