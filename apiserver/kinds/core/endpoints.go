package core

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/apiserver/warning"
	"monoplane.dev/object/builtin"
	"monoplane.dev/rules/semantic"

	corev1 "monoplane.dev/api/core/v1"
)

// Endpoints describes the kind.
func Endpoints(define.Config) define.Definition {
	const deprecated = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
	return define.Definition{Deprecated: deprecated, Strategy: registry.Typed[*corev1.Endpoints]{
		Kind:           corev1.EndpointsKind,
		CreateOnUpdate: true,
		Default:        DefaultEndpoints,
		Validate:       ValidateEndpoints,
		Warn: func(next, _ *corev1.Endpoints) (w validation.Warnings) {
			for i, s := range next.GetSubsets() {
				at := validation.NewPath("subsets").Index(i)
				for j, a := range s.GetAddresses() {
					w.IP(at.Child("addresses").Index(j).Child("ip"), a.GetIp())
				}
				for j, a := range s.GetNotReadyAddresses() {
					w.IP(at.Child("notReadyAddresses").Index(j).Child("ip"), a.GetIp())
				}
			}
			return w
		},
		Admit: func(ctx context.Context, e *corev1.Endpoints) error {
			warnOfAddresses(ctx, e)
			return nil
		},
		Main: registry.TypedUpdateRules[*corev1.Endpoints]{
			Authorize: func(ctx context.Context, _ *registry.Update, next, _ *corev1.Endpoints) error {
				warnOfAddresses(ctx, next)
				return nil
			},
			Validate: ValidateEndpointsUpdate,
		},
		Table: define.Columns[*corev1.Endpoints]{
			define.Text("Endpoints", "Addresses that can be used, and their ports.", shownEndpoints),
			define.Age[*corev1.Endpoints](),
		},
	}.Strategy()}
}

// DefaultEndpoints fills in endpoints.
func DefaultEndpoints(e *corev1.Endpoints) {
	defaults.Message(&e.Metadata)
	for _, s := range e.GetSubsets() {
		for _, port := range s.GetPorts() {
			if port != nil {
				defaults.Set(&port.Protocol, "TCP")
			}
		}
	}
}

// ValidateEndpoints checks endpoints that are to be created.
func ValidateEndpoints(e *corev1.Endpoints) []apierrors.Cause { return wrongEndpoints(e, nil) }

// ValidateEndpointsUpdate checks that a change of endpoints is allowed. Subsets that stay as they are are not judged
// again.
func ValidateEndpointsUpdate(new, old *corev1.Endpoints) []apierrors.Cause {
	return wrongEndpoints(new, old)
}

func wrongEndpoints(e, old *corev1.Endpoints) []apierrors.Cause {
	kept := old != nil && semantic.Equal(
		&corev1.Endpoints{Subsets: e.GetSubsets()}, &corev1.Endpoints{Subsets: old.GetSubsets()})
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(e.GetMetadata(), old.GetMetadata(), true, validation.NameIsSubdomain)
		if !kept {
			judge := f.EndpointIP
			if builtin.IsAPI(e.GetMetadata()) {
				judge = f.ServerIP
			}
			checkSubsets(f, f.Root("subsets"), e.GetSubsets(), judge)
		}
	}
	return f.Causes()
}

func checkSubsets(
	f *validation.Faults, p *validation.Path, subsets []*corev1.EndpointSubset, judge func(*validation.Path, string),
) {
	for i, s := range subsets {
		at := p.Index(i)
		if len(s.GetAddresses()) == 0 && len(s.GetNotReadyAddresses()) == 0 {
			f.Required(at, "must specify `addresses` or `notReadyAddresses`")
		}
		for j, a := range s.GetAddresses() {
			checkEndpointAddress(f, at.Child("addresses").Index(j), a, judge)
		}
		for j, a := range s.GetNotReadyAddresses() {
			checkEndpointAddress(f, at.Child("notReadyAddresses").Index(j), a, judge)
		}
		for j, port := range s.GetPorts() {
			checkEndpointPort(f, at.Child("ports").Index(j), port, len(s.GetPorts()) > 1)
		}
	}
}

func checkEndpointAddress(
	f *validation.Faults, p *validation.Path, a *corev1.EndpointAddress, judge func(*validation.Path, string),
) {
	f.IP(p.Child("ip"), a.GetIp())
	if a.GetHostname() != "" {
		f.Label(p.Child("hostname"), a.GetHostname())
	}
	if a != nil && a.NodeName != nil {
		f.Subdomain(p.Child("nodeName"), a.GetNodeName())
	}
	judge(p.Child("ip"), a.GetIp())
}

func checkEndpointPort(f *validation.Faults, p *validation.Path, port *corev1.EndpointPort, named bool) {
	switch {
	case port.GetName() != "":
		f.Label(p.Child("name"), port.GetName())
	case named:
		f.Required(p.Child("name"), "")
	}
	if wrong := utilvalidation.IsValidPortNum(int(port.GetPort())); len(wrong) > 0 {
		f.InvalidValue(p.Child("port"), port.GetPort(), wrong...)
	}
	f.RequiredOneOf(p.Child("protocol"), port.GetProtocol(), "SCTP", "TCP", "UDP")
	if port != nil && port.AppProtocol != nil {
		f.Qualified(p.Child("appProtocol"), port.GetAppProtocol())
	}
}

// warnOfAddresses warns of addresses that programs write in another way, and so may take for different ones.
func warnOfAddresses(ctx context.Context, e *corev1.Endpoints) {
	if !warning.Collected(ctx) {
		return
	}
	warn := func(subset int, list string, addresses []*corev1.EndpointAddress) {
		for i, a := range addresses {
			ip, err := netip.ParseAddr(a.GetIp())
			if err == nil && ip.Is6() && !ip.Is4In6() && ip.String() != a.GetIp() {
				warning.Add(ctx, fmt.Sprintf("subsets[%d].%s[%d].ip: IPv6 address %q should be in RFC 5952 canonical format (%q)",
					subset, list, i, a.GetIp(), ip.String()))
			}
		}
	}
	for i, s := range e.GetSubsets() {
		warn(i, "addresses", s.GetAddresses())
		warn(i, "notReadyAddresses", s.GetNotReadyAddresses())
	}
}

// shownEndpoints are the first few addresses that can be used, and how many more there are.
func shownEndpoints(e *corev1.Endpoints) string {
	const most = 3
	if len(e.GetSubsets()) == 0 {
		return define.OrNone("")
	}
	var list []string
	count := 0
	for _, s := range e.GetSubsets() {
		ports := make([]string, 0, len(s.GetPorts()))
		for _, port := range s.GetPorts() {
			ports = append(ports, strconv.Itoa(int(port.GetPort())))
		}
		if len(ports) == 0 { // of a headless service
			ports = []string{""}
		}
		count += len(ports) * len(s.GetAddresses())
		for _, port := range ports {
			for _, a := range s.GetAddresses()[:min(len(s.GetAddresses()), most-len(list))] {
				if port == "" {
					list = append(list, a.GetIp())
				} else {
					list = append(list, net.JoinHostPort(a.GetIp(), port))
				}
			}
		}
	}
	text := strings.Join(list, ",")
	if count > most {
		text += fmt.Sprintf(" + %d more...", count-most)
	}
	return text
}
