package validation

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/rules/phase"
	"monoplane.dev/rules/resources"
)

// PodStatusUpdate checks that a change of a pod's status is allowed. The caller has put back everything
// that the status subresource does not change, and passed the new status through defaults.PodStatus.
func PodStatusUpdate(new, old *corev1.Pod) []apierrors.Cause {
	var f faults
	for f.pass() {
		f.objectMetaUpdate(new.GetMetadata(), old.GetMetadata())
		f.coreFinalizers(new.GetMetadata().GetFinalizers())
		v := &pod{faults: &f, spec: new.GetSpec()}
		if v.spec == nil {
			v.spec = &corev1.PodSpec{}
		}
		annotations := f.root("metadata").Child("annotations")
		v.podAnnotations(annotations, new.GetMetadata().GetAnnotations())
		f.annotationChanges(annotations, new, old)

		p, now, was := f.root("status"), new.GetStatus(), old.GetStatus()
		f.phaseChange(p.Child("phase"), now.GetPhase(), was.GetPhase())
		f.podConditions(p.Child("conditions"), now.GetConditions())
		if new.GetSpec().GetNodeName() != old.GetSpec().GetNodeName() {
			f.forbidden(p.Child("nodeName"), "may not be changed directly")
		}
		f.nomination(p.Child("nominatedNodeName"), now, was, old.GetSpec().GetNodeName() != "")
		if g := now.GetObservedGeneration(); g < 0 {
			f.invalidValue(p.Child("observedGeneration"), g, "must be a non-negative integer")
		}
		if now.GetQosClass() != was.GetQosClass() {
			f.invalid(p.Child("qosClass"), now.GetQosClass(), immutable)
		}
		v.statuses(p, now, was)
		f.addresses(p, now, was)
	}
	return f.causes()
}

// phaseChange enforces that a pod never goes back and that a terminal phase is final (LIFE-1, LIFE-10).
// Unknown is read as no phase at all: it can be left, never entered (LIFE-9).
func (f *faults) phaseChange(p *fieldPath, now, was string) {
	if phase.Follows(was, now) {
		return
	}
	if all := phase.All(); !slices.Contains(all, now) {
		f.oneOf(p, now, all...)
		return
	}
	f.forbidden(p, fmt.Sprintf("may not change from %q to %q", was, now))
}

func (f *faults) podConditions(p *fieldPath, list []*corev1.PodCondition) {
	for i, c := range list {
		if g := c.GetObservedGeneration(); g < 0 {
			f.invalidValue(p.Index(i).Child("observedGeneration"), g, "must be a non-negative integer")
		}
		f.qualified(p.Index(i).Child("Type"), c.GetType())
	}
}

func (f *faults) nomination(p *fieldPath, now, was *corev1.PodStatus, bound bool) {
	name := now.GetNominatedNodeName()
	if name == "" || name == was.GetNominatedNodeName() {
		return
	}
	f.subdomain(p, name)
	if bound {
		f.forbidden(p, "may not be set on pods that are already bound to a node")
	}
}

func (f *faults) addresses(p *fieldPath, now, was *corev1.PodStatus) {
	f.ips(p.Child("podIPs"), podIPs(now), podIPs(was))
	hosts := hostIPs(now)
	if len(hosts) > 0 && hosts[0] != now.GetHostIP() {
		f.invalid(p.Child("hostIPs").Index(0).Child("ip"), hosts[0], "must be equal to `hostIP`")
	}
	f.ips(p.Child("hostIPs"), hosts, hostIPs(was))
}

func podIPs(s *corev1.PodStatus) []string {
	ips := make([]string, len(s.GetPodIPs()))
	for i, ip := range s.GetPodIPs() {
		ips[i] = ip.GetIp()
	}
	return ips
}

func hostIPs(s *corev1.PodStatus) []string {
	ips := make([]string, len(s.GetHostIPs()))
	for i, ip := range s.GetHostIPs() {
		ips[i] = ip.GetIp()
	}
	return ips
}

// statuses checks the statuses of the containers of all three lists.
func (v *pod) statuses(p *fieldPath, now, was *corev1.PodStatus) {
	all := restartsAll(v.spec)
	for _, l := range []struct {
		name       string
		now, was   []*corev1.ContainerStatus
		containers []*corev1.Container
		ephemeral  bool
	}{
		{"containerStatuses", now.GetContainerStatuses(), was.GetContainerStatuses(), v.spec.GetContainers(), false},
		{
			"initContainerStatuses", now.GetInitContainerStatuses(), was.GetInitContainerStatuses(),
			v.spec.GetInitContainers(), false,
		},
		{
			"ephemeralContainerStatuses", now.GetEphemeralContainerStatuses(), was.GetEphemeralContainerStatuses(),
			nil, true,
		},
	} {
		at := p.Child(l.name)
		byName := make(map[string]*corev1.Container, len(l.containers))
		for _, c := range l.containers {
			byName[c.GetName()] = c
		}
		if !all || l.ephemeral {
			v.revivals(at, l.now, l.was, byName)
		}
		for i, s := range l.now {
			v.containerUser(at.Index(i).Child("user").Child("linux"), s.GetUser().GetLinux())
			if l.ephemeral {
				if len(s.GetAllocatedResourcesStatus()) > 0 {
					v.forbidden(at.Index(i).Child("allocatedResourcesStatus"), "must not be specified in container status")
				}
				continue
			}
			v.health(at.Index(i).Child("allocatedResourcesStatus"), s, byName[s.GetName()])
		}
	}
}

// revivals refuses that a container which has ended and is not restarted is reported as anything else.
func (v *pod) revivals(p *fieldPath, now, was []*corev1.ContainerStatus, byName map[string]*corev1.Container) {
	alive := make(map[string]bool, len(now))
	for _, s := range now {
		if s.GetState().GetTerminated() == nil {
			alive[s.GetName()] = true
		}
	}
	for i, s := range was {
		ended := s.GetState().GetTerminated()
		if ended == nil || !alive[s.GetName()] {
			continue
		}
		c := byName[s.GetName()]
		if c == nil || !restarts(c, v.spec.GetRestartPolicy(), ended.GetExitCode()) {
			v.forbidden(p.Index(i).Child("state"), "may not be transitioned to non-terminated state")
		}
	}
}

// restartsAll says whether the end of one container can restart all.
func restartsAll(spec *corev1.PodSpec) bool {
	for _, list := range [][]*corev1.Container{spec.GetInitContainers(), spec.GetContainers()} {
		for _, c := range list {
			for _, r := range c.GetRestartPolicyRules() {
				if r.GetAction() == "RestartAllContainers" {
					return true
				}
			}
		}
	}
	return false
}

// restarts says whether a container that ended with code is started again (CTR-2): its rules decide first,
// then its own policy, then the pod's.
func restarts(c *corev1.Container, policy string, code int32) bool {
	if c.RestartPolicy != nil {
		for _, r := range c.GetRestartPolicyRules() {
			codes := r.GetExitCodes()
			in := slices.Contains(codes.GetValues(), code)
			if codes.GetOperator() == opIn && in || codes.GetOperator() == opNotIn && !in {
				return true
			}
		}
		policy = c.GetRestartPolicy()
	}
	switch policy {
	case "Never":
		return false
	case "OnFailure":
		return code != 0
	default:
		return true
	}
}

func (f *faults) containerUser(p *fieldPath, u *corev1.LinuxContainerUser) {
	if u == nil {
		return
	}
	f.invalidValue(p.Child("uid"), u.GetUid(), validation.IsValidUserID(u.GetUid())...)
	f.invalidValue(p.Child("gid"), u.GetGid(), validation.IsValidGroupID(u.GetGid())...)
	for i, g := range u.GetSupplementalGroups() {
		f.invalidValue(p.Child("supplementalGroups").Index(i), g, validation.IsValidGroupID(g)...)
	}
}

const maxHealthMessage = 1024

// health checks what is reported about the devices of a container.
func (f *faults) health(p *fieldPath, s *corev1.ContainerStatus, c *corev1.Container) {
	for j, r := range s.GetAllocatedResourcesStatus() {
		at := p.Index(j)
		if c != nil {
			if _, ok := resources.ListOf(c.GetResources().GetRequests()).Get(r.GetName()); !ok {
				f.invalid(at.Child("name"), r.GetName(), "must match one of the container's resource requests")
			}
		}
		seen := map[string]bool{}
		for k, d := range r.GetResources() {
			dp := at.Child("resources").Index(k)
			f.oneOf(dp.Child("health"), d.GetHealth(), "Healthy", "Unhealthy", "Unknown")
			if d != nil && d.Message != nil && d.GetMessage() == "" {
				f.required(dp.Child("message"), "must be non-empty if specified")
			}
			if len(d.GetMessage()) > maxHealthMessage {
				f.tooLong(dp.Child("message"), maxHealthMessage)
			}
			if seen[d.GetResourceID()] {
				f.duplicate(dp.Child("resourceID"), d.GetResourceID())
			}
			seen[d.GetResourceID()] = true
		}
	}
}
