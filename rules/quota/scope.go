package quota

import (
	"slices"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/object"
	"monoplane.dev/rules/qos"
)

// Scopes of quotas.
const (
	Terminating            = "Terminating"
	NotTerminating         = "NotTerminating"
	BestEffort             = "BestEffort"
	NotBestEffort          = "NotBestEffort"
	PriorityClass          = "PriorityClass"
	CrossNamespaceAffinity = "CrossNamespacePodAffinity"
	VolumeAttributesClass  = "VolumeAttributesClass"
)

// Operators of selectors of scopes.
const (
	In           = "In"
	NotIn        = "NotIn"
	Exists       = "Exists"
	DoesNotExist = "DoesNotExist"
)

// IsScope says whether there is such a scope.
func IsScope(scope string) bool {
	switch scope {
	case Terminating, NotTerminating, BestEffort, NotBestEffort, PriorityClass, CrossNamespaceAffinity,
		VolumeAttributesClass:
		return true
	}
	return false
}

// InScope says whether a standard resource is something that objects in a scope have.
func InScope(scope, resource string) bool {
	switch scope {
	case Terminating, NotTerminating, NotBestEffort, PriorityClass, CrossNamespaceAffinity:
		switch resource {
		case "pods", "cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory":
			return true
		}
		return false
	case BestEffort:
		return resource == "pods"
	case VolumeAttributesClass:
		return resource == "persistentvolumeclaims" || resource == "requests.storage"
	}
	return true
}

// inScopes says whether an object is in all scopes of a quota.
func inScopes(spec *corev1.ResourceQuotaSpec, o object.Object) bool {
	for _, scope := range spec.GetScopes() {
		if !meets(scope, Exists, nil, o) {
			return false
		}
	}
	for _, r := range spec.GetScopeSelector().GetMatchExpressions() {
		if !meets(r.GetScopeName(), r.GetOperator(), r.GetValues(), o) {
			return false
		}
	}
	return true
}

// meets says whether an object meets a requirement. What has no scopes meets none.
func meets(scope, operator string, values []string, o object.Object) bool {
	switch o := o.(type) {
	case *corev1.Pod:
		return podMeets(scope, operator, values, o)
	case *corev1.PersistentVolumeClaim:
		if scope != VolumeAttributesClass {
			return false
		}
		classes := attributesClasses(o)
		if len(classes) == 0 {
			return classMeets(operator, values, "")
		}
		return slices.ContainsFunc(classes, func(class string) bool { return classMeets(operator, values, class) })
	}
	return false
}

func podMeets(scope, operator string, values []string, p *corev1.Pod) bool {
	switch scope {
	case Terminating:
		return HasDeadline(p)
	case NotTerminating:
		return !HasDeadline(p)
	case BestEffort:
		return qos.Of(p) == qos.BestEffort
	case NotBestEffort:
		return qos.Of(p) != qos.BestEffort
	case PriorityClass:
		return classMeets(operator, values, p.GetSpec().GetPriorityClassName())
	case CrossNamespaceAffinity:
		return leavesNamespace(p.GetSpec().GetAffinity())
	}
	return false
}

// classMeets says whether an object's class, empty for none, meets a requirement.
func classMeets(operator string, values []string, class string) bool {
	switch operator {
	case Exists:
		return class != ""
	case DoesNotExist:
		return class == ""
	case In:
		return class != "" && slices.Contains(values, class)
	case NotIn:
		return class == "" || !slices.Contains(values, class)
	}
	return false
}

// HasDeadline says whether a pod ends by itself after a time: it is in scope Terminating then.
func HasDeadline(p *corev1.Pod) bool {
	s := p.GetSpec()
	return s != nil && s.ActiveDeadlineSeconds != nil && *s.ActiveDeadlineSeconds >= 0
}

// leavesNamespace says whether a pod wants to be near pods of other namespaces, or far from them.
func leavesNamespace(a *corev1.Affinity) bool {
	far := func(t *corev1.PodAffinityTerm) bool {
		return len(t.GetNamespaces()) > 0 || t.GetNamespaceSelector() != nil
	}
	weighted := func(t *corev1.WeightedPodAffinityTerm) bool { return far(t.GetPodAffinityTerm()) }
	to, from := a.GetPodAffinity(), a.GetPodAntiAffinity()
	return slices.ContainsFunc(to.GetRequiredDuringSchedulingIgnoredDuringExecution(), far) ||
		slices.ContainsFunc(to.GetPreferredDuringSchedulingIgnoredDuringExecution(), weighted) ||
		slices.ContainsFunc(from.GetRequiredDuringSchedulingIgnoredDuringExecution(), far) ||
		slices.ContainsFunc(from.GetPreferredDuringSchedulingIgnoredDuringExecution(), weighted)
}

// attributesClasses are the classes that a claim has, wants, or is being given.
func attributesClasses(c *corev1.PersistentVolumeClaim) []string {
	s := c.GetStatus()
	names := []string{
		c.GetSpec().GetVolumeAttributesClassName(), s.GetCurrentVolumeAttributesClassName(),
		s.GetModifyVolumeStatus().GetTargetVolumeAttributesClassName(),
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}
