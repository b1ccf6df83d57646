package validation

import (
	"math"

	"k8s.io/apimachinery/pkg/util/validation"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/apierrors"
)

// Pod checks a pod that is to be created, after defaults.NewPod.
func Pod(p *corev1.Pod) []apierrors.Cause { return newPod(p, true) }

// PodWithSpec is Pod for a pod of which the very spec has passed Pod as part of another.
func PodWithSpec(p *corev1.Pod) []apierrors.Cause { return newPod(p, false) }

func newPod(p *corev1.Pod, whole bool) []apierrors.Cause {
	var f faults
	for f.pass() {
		v := f.pod(p, whole)
		spec := f.root("spec")
		if len(v.spec.GetEphemeralContainers()) > 0 {
			f.forbidden(spec.Child("ephemeralContainers"), "cannot be set on create")
		}
		if v.spec.GetNodeName() != "" && len(v.spec.GetSchedulingGates()) > 0 {
			f.forbidden(spec.Child("nodeName"), "cannot be set until all schedulingGates have been cleared")
		}
		v.matchingAnnotations(p.GetMetadata().GetAnnotations())
	}
	return f.causes()
}

// pod checks what holds for a pod at any time, with its spec if it is to check the whole.
func (f *faults) pod(p *corev1.Pod, whole bool) *pod {
	v := &pod{faults: f, spec: p.GetSpec()}
	if v.spec == nil {
		v.spec = &corev1.PodSpec{}
	}
	m := p.GetMetadata()
	f.objectMeta(m, true, NameIsSubdomain)
	f.coreFinalizers(m.GetFinalizers())
	v.podAnnotations(f.root("metadata").Child("annotations"), m.GetAnnotations())
	if whole {
		v.podSpec(f.root("spec"))
	}
	return v
}

func (v *pod) podSpec(p *fieldPath) {
	s := v.spec
	if s.TerminationGracePeriodSeconds == nil {
		v.required(p.Child("terminationGracePeriodSeconds"), "")
	}
	v.checkVolumes(p.Child("volumes"))
	v.containers(p.Child("containers"))
	v.initContainers(p.Child("initContainers"))
	v.ephemeralContainers(p.Child("ephemeralContainers"))
	v.podRequirements(p.Child("resources"))
	v.hostNetworkPorts(p)
	v.requiredOneOf(p.Child("restartPolicy"), s.GetRestartPolicy(), "Always", "OnFailure", "Never")
	v.podSecurity(p.Child("securityContext"))
	v.userNamespace(p)
	v.placement(p)
	v.identity(p)
	v.dns(p)
	v.hostAliases(p.Child("hostAliases"), s.GetHostAliases())
	for i, g := range s.GetReadinessGates() {
		v.qualified(p.Child("readinessGates").Index(i).Child("conditionType"), g.GetConditionType())
	}
	if d := s.ActiveDeadlineSeconds; d != nil && (*d < 1 || *d > math.MaxInt32) {
		v.invalidValue(p.Child("activeDeadlineSeconds"), *d, validation.InclusiveRangeError(1, math.MaxInt32))
	}
	if len(s.GetOverhead()) > 0 {
		v.requirements(p.Child("overhead"), &corev1.ResourceRequirements{Limits: s.GetOverhead()}, containerResource)
	}
	v.operatingSystem(p.Child("os"))
	v.fileKeyVolumes()
}

// placement checks what the scheduler reads.
func (v *pod) placement(p *fieldPath) {
	s := v.spec
	v.labels(p.Child("nodeSelector"), s.GetNodeSelector())
	v.affinity(p.Child("affinity"), s.GetAffinity())
	v.schedulingGates(p.Child("schedulingGates"), s.GetSchedulingGates())
	v.spread(p.Child("topologySpreadConstraints"), s.GetTopologySpreadConstraints())
	v.tolerations(p.Child("tolerations"), s.GetTolerations())
	if s.GetNodeName() != "" {
		v.subdomain(p.Child("nodeName"), s.GetNodeName())
	}
	if s.GetPriorityClassName() != "" {
		v.subdomain(p.Child("priorityClassName"), s.GetPriorityClassName())
	}
	if s.PreemptionPolicy != nil {
		v.requiredOneOf(p.Child("preemptionPolicy"), s.GetPreemptionPolicy(), "PreemptLowerPriority", "Never")
	}
}

const maxHostname = 64

// identity checks the names that a pod goes by.
func (v *pod) identity(p *fieldPath) {
	s := v.spec
	if s.GetServiceAccountName() != "" {
		v.subdomain(p.Child("serviceAccountName"), s.GetServiceAccountName())
	} else {
		v.noTokens(p.Child("volumes"))
	}
	if s.GetHostname() != "" {
		v.label(p.Child("hostname"), s.GetHostname())
	}
	if s.GetSubdomain() != "" {
		v.label(p.Child("subdomain"), s.GetSubdomain())
	}
	if s.RuntimeClassName != nil {
		v.subdomain(p.Child("runtimeClassName"), s.GetRuntimeClassName())
	}
	if s.HostnameOverride == nil {
		return
	}
	at := p.Child("hostnameOverride")
	if s.GetSetHostnameAsFQDN() {
		v.forbidden(at, "may not be specified when setHostnameAsFQDN is true")
	}
	if s.GetHostNetwork() {
		v.forbidden(at, "may not be specified when hostNetwork is true")
	}
	if len(s.GetHostnameOverride()) > maxHostname {
		v.tooLong(at, maxHostname)
	}
	v.subdomain(at, s.GetHostnameOverride())
}

// noTokens refuses tokens of a service account where there is none.
func (v *pod) noTokens(p *fieldPath) {
	for i, vol := range v.spec.GetVolumes() {
		for j, s := range vol.GetVolumeSource().GetProjected().GetSources() {
			if s.GetServiceAccountToken() != nil {
				v.forbidden(p.Index(i).Child("projected").Child("sources").Index(j).Child("serviceAccountToken"),
					"must not be specified when serviceAccountName is not set")
			}
		}
	}
}

// operatingSystem checks spec.os. Monoplane's nodes run Linux; what only Windows knows is refused by its
// support option.
func (v *pod) operatingSystem(p *fieldPath) {
	os := v.spec.GetOs()
	if os == nil {
		return
	}
	if os.GetName() == "" {
		v.required(p.Child("name"), "")
		return
	}
	v.oneOf(p, os.GetName(), osLinux, osWindows)
}
