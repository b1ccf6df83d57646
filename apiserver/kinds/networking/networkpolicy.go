package networking

import (
	"context"

	"google.golang.org/protobuf/proto"
	utilnet "k8s.io/utils/net"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/kinds/workload"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/validation"

	metav1 "monoplane.dev/api/meta/v1"
	networkingv1 "monoplane.dev/api/networking/v1"
)

// What a policy is about.
const (
	typeIngress = "Ingress"
	typeEgress  = "Egress"
)

// NetworkPolicy describes the kind.
func NetworkPolicy(c define.Config) define.Definition {
	var guards func(context.Context, *networkingv1.NetworkPolicy) ([]store.Guard, error)
	if !c.PodNetwork {
		guards = define.Warned[*networkingv1.NetworkPolicy](
			"pods are on the network of their machine here, where NetworkPolicies are not enforced: all traffic is let through")
	}
	return define.Definition{Strategy: registry.Typed[*networkingv1.NetworkPolicy]{
		Kind:     networkingv1.NetworkPolicyKind,
		Spec:     func(o *networkingv1.NetworkPolicy) proto.Message { return o.GetSpec() },
		Default:  DefaultNetworkPolicy,
		Validate: ValidateNetworkPolicy,
		Warn:     warningsOfNetworkPolicy,
		Guards:   guards,
		Main:     registry.TypedUpdateRules[*networkingv1.NetworkPolicy]{Validate: ValidateNetworkPolicyUpdate},
		Table: define.Columns[*networkingv1.NetworkPolicy]{
			define.Text("Pod-Selector", "The pods, by their labels.", func(o *networkingv1.NetworkPolicy) string {
				return define.OrNone(workload.Selector(o.GetSpec().GetPodSelector()))
			}),
			define.Age[*networkingv1.NetworkPolicy](),
		},
	}.Strategy()}
}

// DefaultNetworkPolicy fills in a policy; call it on create and update.
func DefaultNetworkPolicy(o *networkingv1.NetworkPolicy) {
	defaults.Message(&o.Metadata)
	defaults.Message(&o.Spec)
	defaults.Message(&o.Spec.PodSelector)
	if len(o.Spec.PolicyTypes) == 0 {
		o.Spec.PolicyTypes = []string{typeIngress}
		if len(o.Spec.Egress) > 0 {
			o.Spec.PolicyTypes = append(o.Spec.PolicyTypes, typeEgress)
		}
	}
	for _, r := range o.Spec.Ingress {
		defaultPorts(r.GetPorts())
	}
	for _, r := range o.Spec.Egress {
		defaultPorts(r.GetPorts())
	}
}

func defaultPorts(list []*networkingv1.NetworkPolicyPort) {
	for i := range list {
		defaults.Message(&list[i])
		defaults.SetPtr(&list[i].Protocol, "TCP")
	}
}

// ValidateNetworkPolicy checks a policy that is to be created.
func ValidateNetworkPolicy(o *networkingv1.NetworkPolicy) []apierrors.Cause {
	return wrongPolicy(o, nil)
}

// ValidateNetworkPolicyUpdate checks that a change of a policy is allowed: all of it may change. Ranges that were
// there are not judged anew.
func ValidateNetworkPolicyUpdate(new, old *networkingv1.NetworkPolicy) []apierrors.Cause {
	return wrongPolicy(new, old)
}

func wrongPolicy(o, old *networkingv1.NetworkPolicy) []apierrors.Cause {
	var known []string
	eachPeer(old.GetSpec(), func(_ string, _, _ int, peer *networkingv1.NetworkPolicyPeer) {
		if b := peer.GetIpBlock(); b != nil {
			known = append(append(known, b.GetCidr()), b.GetExcept()...)
		}
	})
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(o.GetMetadata(), old.GetMetadata(), true, validation.NameIsSubdomain)
		s, p := o.GetSpec(), f.Root("spec")
		f.LabelSelector(p.Child("podSelector"), s.GetPodSelector())
		for i, r := range s.GetIngress() {
			checkPorts(f, p.Child("ingress").Index(i).Child("ports"), r.GetPorts())
		}
		for i, r := range s.GetEgress() {
			checkPorts(f, p.Child("egress").Index(i).Child("ports"), r.GetPorts())
		}
		eachPeer(s, func(direction string, i, j int, peer *networkingv1.NetworkPolicyPeer) {
			end := map[string]string{"ingress": "from", "egress": "to"}[direction]
			checkPeer(f, p.Child(direction).Index(i).Child(end).Index(j), peer, known)
		})
		if types := s.GetPolicyTypes(); len(types) > 2 {
			f.InvalidValue(p.Child("policyTypes"), types, "may not specify more than two policyTypes")
		} else {
			for i, t := range types {
				f.OneOf(p.Child("policyTypes").Index(i), t, typeIngress, typeEgress)
			}
		}
	}
	return f.Causes()
}

// eachPeer calls f with every peer, and where it stands.
func eachPeer(
	s *networkingv1.NetworkPolicySpec, f func(direction string, i, j int, peer *networkingv1.NetworkPolicyPeer),
) {
	for i, r := range s.GetIngress() {
		for j, peer := range r.GetFrom() {
			f("ingress", i, j, peer)
		}
	}
	for i, r := range s.GetEgress() {
		for j, peer := range r.GetTo() {
			f("egress", i, j, peer)
		}
	}
}

func checkPorts(f *validation.Faults, p *validation.Path, list []*networkingv1.NetworkPolicyPort) {
	for i, port := range list {
		if port != nil {
			checkPort(f, p.Index(i), port)
		}
	}
}

func checkPort(f *validation.Faults, p *validation.Path, port *networkingv1.NetworkPolicyPort) {
	if port.Protocol != nil {
		f.OneOf(p.Child("protocol"), *port.Protocol, "TCP", "UDP", "SCTP")
	}
	const text = 1
	at, end, last := p.Child("port"), p.Child("endPort"), port.EndPort
	switch {
	case port.Port == nil && last != nil:
		f.InvalidValue(end, *last, "may not be specified when `port` is not specified")
	case port.Port == nil:
	case port.Port.GetType() == text:
		if last != nil {
			f.InvalidValue(end, *last, "may not be specified when `port` is non-numeric")
		}
		f.Invalid(at, port.Port.GetStrVal(), validation.WrongPortName(port.Port.GetStrVal())...)
	default:
		first := port.Port.GetIntVal()
		checkNumber(f, at, first)
		if last == nil {
			return
		}
		if *last < first {
			f.InvalidValue(end, first, "must be greater than or equal to `port`")
		}
		checkNumber(f, end, *last)
	}
}

func checkPeer(f *validation.Faults, p *validation.Path, peer *networkingv1.NetworkPolicyPeer, known []string) {
	selectors := 0
	for _, s := range [...]struct {
		field    string
		selector *metav1.LabelSelector
	}{{"podSelector", peer.GetPodSelector()}, {"namespaceSelector", peer.GetNamespaceSelector()}} {
		if s.selector != nil {
			selectors++
			f.LabelSelector(p.Child(s.field), s.selector)
		}
	}
	block := peer.GetIpBlock()
	if block != nil {
		checkBlock(f, p.Child("ipBlock"), block, known)
	}
	switch {
	case block == nil && selectors == 0:
		f.Required(p, "must specify a peer")
	case block != nil && selectors > 0:
		f.Forbidden(p, "may not specify both ipBlock and another peer")
	}
}

// checkBlock checks a range and what is taken out of it.
func checkBlock(f *validation.Faults, p *validation.Path, b *networkingv1.IPBlock, known []string) {
	if b.GetCidr() == "" {
		f.Required(p.Child("cidr"), "")
		return
	}
	checkRange(f, p.Child("cidr"), b.GetCidr(), known)
	_, whole, err := utilnet.ParseCIDRSloppy(b.GetCidr())
	if err != nil {
		return
	}
	for i, text := range b.GetExcept() {
		at := p.Child("except").Index(i)
		checkRange(f, at, text, known)
		_, part, err := utilnet.ParseCIDRSloppy(text)
		if err != nil {
			continue
		}
		wholeBits, _ := whole.Mask.Size()
		partBits, _ := part.Mask.Size()
		if !whole.Contains(part.IP) || wholeBits >= partBits {
			f.Invalid(at, text, "must be a strict subset of `cidr`")
		}
	}
}

func warningsOfNetworkPolicy(next, _ *networkingv1.NetworkPolicy) (w validation.Warnings) {
	peers := func(at *validation.Path, peers []*networkingv1.NetworkPolicyPeer) {
		for i, p := range peers {
			if p.GetIpBlock() == nil {
				continue
			}
			at := at.Index(i).Child("ipBlock")
			w.CIDR(at.Child("cidr"), p.GetIpBlock().GetCidr())
			for j, cidr := range p.GetIpBlock().GetExcept() {
				w.CIDR(at.Child("except").Index(j), cidr)
			}
		}
	}
	for i, r := range next.GetSpec().GetIngress() {
		peers(validation.NewPath("spec", "ingress").Index(i).Child("from"), r.GetFrom())
	}
	for i, r := range next.GetSpec().GetEgress() {
		peers(validation.NewPath("spec", "egress").Index(i).Child("to"), r.GetTo())
	}
	return w
}
