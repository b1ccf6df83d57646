// Package podspec is what pods and the templates of pods have in common: the defaults of a pod's spec, and what is
// wrong with one (spec: CTR, VOL, ENV, DOWN, SPREAD). Package pod adds what only a pod has: its status, its own
// metadata, and how it may change.
//
// Default fills in a spec that the caller owns, never fails, accepts nil parts and elements, and is idempotent. A
// Checker expects a spec that has been through there. Like all of package validation it panics on nothing and looks at
// no other object.
package podspec

import (
	"math"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
)

// Checker checks the spec of one pod or template, and the annotations that have something to do with it.
type Checker struct {
	faults
	// at is where the spec is.
	at   *validation.Path
	spec *corev1.PodSpec
	// pod is the name of the pod; empty in a template.
	pod string
	// template says that the spec is that of a template.
	template bool
	volumes  map[string]*corev1.VolumeSource
}

// faults has the checks of parts that need to know nothing of the rest of the spec.
type faults struct{ *validation.Faults }

// NewChecker returns what checks spec, which is not nil, of a pod at a path, and adds what is wrong to f. The name of
// the pod is empty for a template. It is for one pass.
func NewChecker(f *validation.Faults, at *validation.Path, pod string, spec *corev1.PodSpec) *Checker {
	return &Checker{faults: faults{f}, at: at, pod: pod, spec: spec}
}

// CheckSpec checks the spec, as it is after Default.
func (v *Checker) CheckSpec() {
	p, s := v.at, v.spec
	if s.TerminationGracePeriodSeconds == nil {
		v.Required(p.Child("terminationGracePeriodSeconds"), "")
	}
	v.checkVolumes(p.Child("volumes"))
	v.containers(p.Child("containers"))
	v.initContainers(p.Child("initContainers"))
	v.ephemeralContainers(p.Child("ephemeralContainers"))
	v.podRequirements(p.Child("resources"))
	v.hostNetworkPorts(p)
	v.RequiredOneOf(p.Child("restartPolicy"), s.GetRestartPolicy(), "Always", "OnFailure", "Never")
	v.podSecurity(p.Child("securityContext"))
	v.userNamespace(p)
	v.placement(p)
	v.identity(p)
	v.dns(p)
	v.hostAliases(p.Child("hostAliases"), s.GetHostAliases())
	for i, g := range s.GetReadinessGates() {
		v.Qualified(p.Child("readinessGates").Index(i).Child("conditionType"), g.GetConditionType())
	}
	if d := s.ActiveDeadlineSeconds; d != nil && (*d < 1 || *d > math.MaxInt32) {
		v.InvalidValue(p.Child("activeDeadlineSeconds"), *d, utilvalidation.InclusiveRangeError(1, math.MaxInt32))
	}
	if len(s.GetOverhead()) > 0 {
		v.Requirements(p.Child("overhead"), &corev1.ResourceRequirements{Limits: s.GetOverhead()}, validation.OfContainer)
	}
	v.operatingSystem(p)
	v.hostProcess(p)
	v.fileKeyVolumes()
}

// placement checks what the scheduler reads.
func (v *Checker) placement(p *validation.Path) {
	s := v.spec
	v.Labels(p.Child("nodeSelector"), s.GetNodeSelector())
	v.affinity(p.Child("affinity"), s.GetAffinity())
	v.schedulingGates(p.Child("schedulingGates"), s.GetSchedulingGates())
	v.spread(p.Child("topologySpreadConstraints"), s.GetTopologySpreadConstraints())
	CheckTolerations(v.Faults, p.Child("tolerations"), s.GetTolerations())
	if s.GetNodeName() != "" {
		v.Subdomain(p.Child("nodeName"), s.GetNodeName())
	}
	if s.GetPriorityClassName() != "" {
		v.Subdomain(p.Child("priorityClassName"), s.GetPriorityClassName())
	}
	if s.PreemptionPolicy != nil {
		v.RequiredOneOf(p.Child("preemptionPolicy"), s.GetPreemptionPolicy(), "PreemptLowerPriority", "Never")
	}
}

const maxHostname = 64

// identity checks the names that a pod goes by.
func (v *Checker) identity(p *validation.Path) {
	s := v.spec
	if s.GetServiceAccountName() != "" {
		v.Subdomain(p.Child("serviceAccountName"), s.GetServiceAccountName())
	}
	if s.GetHostname() != "" {
		v.Label(p.Child("hostname"), s.GetHostname())
	}
	if s.GetSubdomain() != "" {
		v.Label(p.Child("subdomain"), s.GetSubdomain())
	}
	if s.RuntimeClassName != nil {
		v.Subdomain(p.Child("runtimeClassName"), s.GetRuntimeClassName())
	}
	if s.HostnameOverride == nil {
		return
	}
	at := p.Child("hostnameOverride")
	if s.GetSetHostnameAsFQDN() {
		v.Forbidden(at, "may not be specified when setHostnameAsFQDN is true")
	}
	if s.GetHostNetwork() {
		v.Forbidden(at, "may not be specified when hostNetwork is true")
	}
	if len(s.GetHostnameOverride()) > maxHostname {
		v.TooLong(at, maxHostname)
	}
	v.Subdomain(at, s.GetHostnameOverride())
}

// CheckTokens refuses tokens of a service account where there is none. A template may leave it to its pods to have
// one.
func (v *Checker) CheckTokens() {
	if v.spec.GetServiceAccountName() != "" {
		return
	}
	p := v.at.Child("volumes")
	for i, vol := range v.spec.GetVolumes() {
		for j, s := range vol.GetVolumeSource().GetProjected().GetSources() {
			if s.GetServiceAccountToken() != nil {
				v.Forbidden(p.Index(i).Child("projected").Child("sources").Index(j).Child("serviceAccountToken"),
					"must not be specified when serviceAccountName is not set")
			}
		}
	}
}
