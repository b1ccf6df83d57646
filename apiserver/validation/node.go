package validation

import (
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
)

// Node checks a node that is to be created.
func Node(n *corev1.Node) []apierrors.Cause {
	var f faults
	for f.pass() {
		f.objectMeta(n.GetMetadata(), false, NameIsSubdomain)
		f.coreFinalizers(n.GetMetadata().GetFinalizers())
		f.taints(f.root("metadata").Child("taints"), n.GetSpec().GetTaints())
		f.nodeStatus(n.GetStatus())
		f.cidrs(f.root("spec").Child("podCIDRs"), n.GetSpec().GetPodCIDRs())
	}
	return f.causes()
}

// NodeUpdate checks that a change of a node's metadata and spec is allowed.
func NodeUpdate(new, old *corev1.Node) []apierrors.Cause {
	var f faults
	for f.pass() {
		f.nodeUpdate(new, old)
	}
	return f.causes()
}

// NodeStatusUpdate checks that a change of a node's status is allowed.
func NodeStatusUpdate(new, old *corev1.Node) []apierrors.Cause { return NodeUpdate(new, old) }

func (f *faults) nodeUpdate(new, old *corev1.Node) {
	f.objectMetaUpdate(new.GetMetadata(), old.GetMetadata())
	f.objectMeta(new.GetMetadata(), false, NameIsSubdomain)
	f.coreFinalizers(new.GetMetadata().GetFinalizers())
	f.taints(f.root("metadata").Child("taints"), new.GetSpec().GetTaints())
	f.nodeStatus(new.GetStatus())

	p, now, was := f.root("spec"), new.GetSpec(), old.GetSpec()
	f.cidrs(p.Child("podCIDRs"), now.GetPodCIDRs())
	if had := was.GetPodCIDRs(); len(had) > 0 && fmt.Sprint(had) != fmt.Sprint(now.GetPodCIDRs()) {
		f.forbidden(p.Child("podCIDRs"), `node updates may not change podCIDR except from "" to valid`)
	}
	if had := was.GetProviderID(); had != "" && had != now.GetProviderID() {
		f.forbidden(p.Child("providerID"), `node updates may not change providerID except from "" to valid`)
	}
	if now.GetExternalID() != was.GetExternalID() {
		f.forbidden(p.Child("externalID"), "may not be updated")
	}
}

// taints checks the taints of a node (NODE-5): unique by key and effect.
func (f *faults) taints(p *fieldPath, list []*corev1.Taint) {
	type pair struct{ key, effect string }
	seen := map[pair]bool{}
	for i, t := range list {
		at := p.Index(i)
		f.qualified(at.Child("key"), t.GetKey())
		if msgs := wrongLabelValue(t.GetValue()); len(msgs) > 0 {
			f.invalid(at.Child("value"), t.GetValue(), joined(msgs))
		}
		f.requiredOneOf(at.Child("effect"), t.GetEffect(), effectNoSchedule, effectPrefer, effectNoExecute)
		k := pair{t.GetKey(), t.GetEffect()}
		if seen[k] {
			e := field.Duplicate(nil, k.key+":"+k.effect)
			e.Detail = "taints must be unique by key and effect pair"
			f.add(at, e)
		}
		seen[k] = true
	}
}

func (f *faults) nodeStatus(s *corev1.NodeStatus) {
	p := f.root("status")
	for _, l := range []struct {
		name string
		list map[string]*metav1.Quantity
	}{{"capacity", s.GetCapacity()}, {"allocatable", s.GetAllocatable()}} {
		for _, name := range sorted(&few{}, l.list) {
			f.amount(p.Child(l.name).Child(name), name, l.list[name])
		}
	}
	if swap := s.GetNodeInfo().GetSwap(); swap != nil && swap.Capacity != nil {
		f.positive(f.root("metadata").Child("nodeSwapStatus").Child("capacity"), swap.GetCapacity()) // Kubernetes' path.
	}
	f.declaredFeatures(p.Child("declaredFeatures"), s.GetDeclaredFeatures())
	type address struct{ kind, value string }
	seen := map[address]bool{}
	for i, a := range s.GetAddresses() {
		k := address{a.GetType(), a.GetAddress()}
		if seen[k] {
			f.duplicate(p.Child("addresses").Index(i), k.kind+"="+k.value)
		}
		seen[k] = true
	}
}

var featureName = regexp.MustCompile(`^[A-Z][a-zA-Z0-9]*(\/[a-zA-Z][a-zA-Z0-9]*)*$`)

func (f *faults) declaredFeatures(p *fieldPath, list []string) {
	for i, name := range list {
		switch {
		case len(name) > validation.DNS1123SubdomainMaxLength:
			f.invalid(p.Index(i), name, fmt.Sprintf("invalid feature name %q: must be no more than %d characters",
				shorten(name), validation.DNS1123SubdomainMaxLength))
		case !featureName.MatchString(name):
			f.invalid(p.Index(i), name, fmt.Sprintf("invalid feature name %q: must start with an UpperCamelCase "+
				"segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), "+
				"and contain only alphanumeric characters and slashes", name))
		}
		if i == 0 {
			continue
		}
		switch before := list[i-1]; {
		case before == name:
			f.duplicate(p.Index(i), name)
		case before > name:
			f.invalid(p.Index(i), name, "list must be sorted alphabetically")
		}
	}
}
