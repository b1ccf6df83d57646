package core

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/auth"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/core/nodekey"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/object"
	"monoplane.dev/rules/taints"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// Node describes the kind. Which machine a node belongs to, and what its agent may do with it, is most of it (NODE-7).
func Node(c define.Config) define.Definition {
	n := nodes{deps: c.Deps, audit: c.Audit}
	return define.Definition{Server: func(b object.Backend, _ func(*object.Kind) object.Backend) any {
		return &nodeService{NodesBackend: corev1rpc.NodesBackend{Backend: b}, documents: c.Documents}
	}, Strategy: registry.Typed[*corev1.Node]{
		Kind:       corev1.NodeKind,
		Default:    DefaultNode,
		DefaultNew: DefaultNode, // an agent registers its node with its status
		Admit:      n.admit,
		Validate:   ValidateNode,
		Warn:       warningsOfNode,
		Guards:     n.free,
		Takes:      n.lease,
		Stored:     n.brokenGlass,
		MayRead: func(ctx context.Context, o *corev1.Node) error {
			return auth.OwnNode(auth.From(ctx), o.GetMetadata().GetName(), `nodes "`+o.GetMetadata().GetName()+`"`)
		},
		Main: registry.TypedUpdateRules[*corev1.Node]{
			Authorize: n.authorize,
			Validate:  ValidateNodeUpdate,
		},
		Subresources: map[string]registry.TypedUpdateRules[*corev1.Node]{
			"status": {
				Authorize: func(ctx context.Context, _ *registry.Update, next, live *corev1.Node) error {
					nodekey.Keep(next.Metadata, live.Metadata)
					return sameMachine(auth.From(ctx), live)
				},
				Validate: ValidateNodeStatusUpdate,
			},
		},
		Fields: map[string]func(*corev1.Node) string{
			"spec.unschedulable": func(o *corev1.Node) string { return strconv.FormatBool(o.GetSpec().GetUnschedulable()) },
		},
		Table: nodeTable(),
	}.Strategy()}
}

func warningsOfNode(next, _ *corev1.Node) (w validation.Warnings) {
	if next.GetSpec().GetConfigSource() != nil {
		w.Say("spec.configSource: the feature is removed")
	}
	if next.GetSpec().GetExternalID() != "" {
		w.Say("spec.externalID: this field is deprecated, and is unused by Kubernetes")
	}
	for i, cidr := range next.GetSpec().GetPodCIDRs() {
		w.CIDR(validation.NewPath("spec", "podCIDRs").Index(i), cidr)
	}
	return w
}

// DefaultNode fills in a node; call it on create, on update and on a status update.
func DefaultNode(n *corev1.Node) {
	defaults.Message(&n.Metadata)
	defaults.Message(&n.Spec)
	defaults.Message(&n.Status)
	defaults.Round(n.Status.Capacity)
	defaults.Round(n.Status.Allocatable)
	if n.Status.Allocatable == nil && n.Status.Capacity != nil {
		n.Status.Allocatable = make(map[string]*metav1.Quantity, len(n.Status.Capacity))
		for name, q := range n.Status.Capacity {
			n.Status.Allocatable[name] = defaults.CloneQuantity(q)
		}
	}
	switch s := n.Spec; {
	case s.PodCIDR != "" && (len(s.PodCIDRs) == 0 || s.PodCIDRs[0] != s.PodCIDR):
		s.PodCIDRs = []string{s.PodCIDR}
	case s.PodCIDR == "" && len(s.PodCIDRs) > 0:
		s.PodCIDR = s.PodCIDRs[0]
	}
}

// ValidateNode checks a node that is to be created.
func ValidateNode(n *corev1.Node) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.ObjectMeta(n.GetMetadata(), false, validation.NameIsSubdomain)
		f.CoreFinalizers(n.GetMetadata().GetFinalizers())
		checkTaints(f, f.Root("metadata").Child("taints"), n.GetSpec().GetTaints())
		checkNodeStatus(f, n.GetStatus())
		f.CIDRs(f.Root("spec").Child("podCIDRs"), n.GetSpec().GetPodCIDRs())
	}
	return f.Causes()
}

// ValidateNodeUpdate checks that a change of a node's metadata and spec is allowed.
func ValidateNodeUpdate(new, old *corev1.Node) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		checkNodeUpdate(f, new, old)
	}
	return f.Causes()
}

// ValidateNodeStatusUpdate checks that a change of a node's status is allowed.
func ValidateNodeStatusUpdate(new, old *corev1.Node) []apierrors.Cause {
	return ValidateNodeUpdate(new, old)
}

func checkNodeUpdate(f *validation.Faults, new, old *corev1.Node) {
	f.ObjectMetaUpdate(new.GetMetadata(), old.GetMetadata())
	f.ObjectMeta(new.GetMetadata(), false, validation.NameIsSubdomain)
	f.CoreFinalizers(new.GetMetadata().GetFinalizers())
	checkTaints(f, f.Root("metadata").Child("taints"), new.GetSpec().GetTaints())
	checkNodeStatus(f, new.GetStatus())

	p, now, was := f.Root("spec"), new.GetSpec(), old.GetSpec()
	f.CIDRs(p.Child("podCIDRs"), now.GetPodCIDRs())
	if had := was.GetPodCIDRs(); len(had) > 0 && fmt.Sprint(had) != fmt.Sprint(now.GetPodCIDRs()) {
		f.Forbidden(p.Child("podCIDRs"), `node updates may not change podCIDR except from "" to valid`)
	}
	if had := was.GetProviderID(); had != "" && had != now.GetProviderID() {
		f.Forbidden(p.Child("providerID"), `node updates may not change providerID except from "" to valid`)
	}
	if now.GetExternalID() != was.GetExternalID() {
		f.Forbidden(p.Child("externalID"), "may not be updated")
	}
}

// checkTaints checks the taints of a node (NODE-5): unique by key and effect.
func checkTaints(f *validation.Faults, p *validation.Path, list []*corev1.Taint) {
	type pair struct{ key, effect string }
	seen := map[pair]bool{}
	for i, t := range list {
		at := p.Index(i)
		f.Qualified(at.Child("key"), t.GetKey())
		if msgs := validation.WrongLabelValue(t.GetValue()); len(msgs) > 0 {
			f.Invalid(at.Child("value"), t.GetValue(), validation.Joined(msgs))
		}
		f.RequiredOneOf(at.Child("effect"), t.GetEffect(),
			taints.NoSchedule, taints.PreferNoSchedule, taints.NoExecute)
		k := pair{t.GetKey(), t.GetEffect()}
		if seen[k] {
			e := field.Duplicate(nil, k.key+":"+k.effect)
			e.Detail = "taints must be unique by key and effect pair"
			f.Add(at, e)
		}
		seen[k] = true
	}
}

func checkNodeStatus(f *validation.Faults, s *corev1.NodeStatus) {
	p := f.Root("status")
	for _, l := range []struct {
		name string
		list map[string]*metav1.Quantity
	}{{"capacity", s.GetCapacity()}, {"allocatable", s.GetAllocatable()}} {
		for _, name := range validation.Sorted(&validation.Few{}, l.list) {
			f.Amount(p.Child(l.name).Child(name), name, l.list[name])
		}
	}
	if swap := s.GetNodeInfo().GetSwap(); swap != nil && swap.Capacity != nil {
		f.Positive(f.Root("metadata").Child("nodeSwapStatus").Child("capacity"), swap.GetCapacity()) // Kubernetes' path.
	}
	checkDeclaredFeatures(f, p.Child("declaredFeatures"), s.GetDeclaredFeatures())
	type address struct{ kind, value string }
	seen := map[address]bool{}
	for i, a := range s.GetAddresses() {
		k := address{a.GetType(), a.GetAddress()}
		if seen[k] {
			f.Duplicate(p.Child("addresses").Index(i), k.kind+"="+k.value)
		}
		seen[k] = true
	}
}

var featureName = regexp.MustCompile(`^[A-Z][a-zA-Z0-9]*(\/[a-zA-Z][a-zA-Z0-9]*)*$`)

func checkDeclaredFeatures(f *validation.Faults, p *validation.Path, list []string) {
	for i, name := range list {
		switch {
		case len(name) > utilvalidation.DNS1123SubdomainMaxLength:
			f.Invalid(p.Index(i), name, fmt.Sprintf("invalid feature name %q: must be no more than %d characters",
				validation.Shorten(name), utilvalidation.DNS1123SubdomainMaxLength))
		case !featureName.MatchString(name):
			f.Invalid(p.Index(i), name, fmt.Sprintf("invalid feature name %q: must start with an UpperCamelCase "+
				"segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), "+
				"and contain only alphanumeric characters and slashes", name))
		}
		if i == 0 {
			continue
		}
		switch before := list[i-1]; {
		case before == name:
			f.Duplicate(p.Index(i), name)
		case before > name:
			f.Invalid(p.Index(i), name, "list must be sorted alphabetically")
		}
	}
}

// rolePrefix begins labels that name a role of a node.
const rolePrefix = "node-role.kubernetes.io/"

func nodeTable() define.Columns[*corev1.Node] {
	info := func(get func(*corev1.NodeSystemInfo) string) func(*corev1.Node) string {
		return func(o *corev1.Node) string {
			if s := get(o.GetStatus().GetNodeInfo()); s != "" {
				return s
			}
			return "<unknown>"
		}
	}
	address := func(kind string) func(*corev1.Node) string {
		return func(o *corev1.Node) string {
			for _, a := range o.GetStatus().GetAddresses() {
				if a.GetType() == kind {
					return a.GetAddress()
				}
			}
			return "<none>"
		}
	}
	return define.Columns[*corev1.Node]{
		define.Text("Status", "Whether the node is ready, and whether it takes pods.", nodeStatus),
		define.Text("Roles", "Roles of the node.", nodeRoles),
		define.Age[*corev1.Node](),
		define.Text("Version", "Version of the node's agent.", func(o *corev1.Node) string {
			return o.GetStatus().GetNodeInfo().GetKubeletVersion()
		}),
		define.Text("Internal-IP", "Address within the cluster.", address("InternalIP")).Wide(),
		define.Text("External-IP", "Address outside the cluster.", address("ExternalIP")).Wide(),
		define.Text("OS-Image", "Operating system.", info((*corev1.NodeSystemInfo).GetOsImage)).Wide(),
		define.Text("Kernel-Version", "Kernel, and the architecture it was built for.", info(kernelAndArchitecture)).Wide(),
		define.Text("Container-Runtime", "Runtime that runs containers.",
			info((*corev1.NodeSystemInfo).GetContainerRuntimeVersion)).Wide(),
	}
}

// kernelAndArchitecture is what a node's table says of its kernel, which may be unknown.
func kernelAndArchitecture(i *corev1.NodeSystemInfo) string {
	if kernel := i.GetKernelVersion(); kernel == "" || i.GetArchitecture() == "" {
		return kernel
	}
	return i.GetKernelVersion() + " (" + i.GetArchitecture() + ")"
}

func nodeStatus(o *corev1.Node) string {
	status := "Unknown"
	for _, c := range o.GetStatus().GetConditions() {
		if c.GetType() != "Ready" {
			continue
		}
		status = "NotReady"
		if c.GetStatus() == "True" {
			status = "Ready"
		}
	}
	if o.GetSpec().GetUnschedulable() {
		status += ",SchedulingDisabled"
	}
	return status
}

func nodeRoles(o *corev1.Node) string {
	var roles []string
	for k, v := range o.GetMetadata().GetLabels() {
		if role, ok := strings.CutPrefix(k, rolePrefix); ok && role != "" {
			roles = append(roles, role)
		} else if k == "kubernetes.io/role" && v != "" {
			roles = append(roles, v)
		}
	}
	slices.Sort(roles)
	return define.OrNone(strings.Join(slices.Compact(roles), ","))
}
