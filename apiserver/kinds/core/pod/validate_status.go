package pod

import (
	"fmt"
	"slices"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/rules/phase"
	"monoplane.dev/rules/resources"

	corev1 "monoplane.dev/api/core/v1"
)

// ValidateStatusUpdate checks that a change of a pod's status is allowed. The caller has put back everything
// that the status subresource does not change, and passed the new status through DefaultStatus.
func ValidateStatusUpdate(new, old *corev1.Pod) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.ObjectMetaUpdate(new.GetMetadata(), old.GetMetadata())
		f.CoreFinalizers(new.GetMetadata().GetFinalizers())
		v := checksOf(f, new)
		annotations := f.Root("metadata").Child("annotations")
		v.CheckAnnotations(annotations, new.GetMetadata().GetAnnotations())
		v.annotationChanges(annotations, new, old)

		p, now, was := f.Root("status"), new.GetStatus(), old.GetStatus()
		v.phaseChange(p.Child("phase"), now.GetPhase(), was.GetPhase())
		v.podConditions(p.Child("conditions"), now.GetConditions())
		if new.GetSpec().GetNodeName() != old.GetSpec().GetNodeName() {
			v.Forbidden(p.Child("nodeName"), "may not be changed directly")
		}
		v.nomination(p.Child("nominatedNodeName"), now, was, old.GetSpec().GetNodeName() != "")
		if g := now.GetObservedGeneration(); g < 0 {
			v.InvalidValue(p.Child("observedGeneration"), g, "must be a non-negative integer")
		}
		if now.GetQosClass() != was.GetQosClass() {
			v.Invalid(p.Child("qosClass"), now.GetQosClass(), validation.Immutable)
		}
		v.statuses(p, now, was)
		v.addresses(p, now, was)
	}
	return f.Causes()
}

// phaseChange enforces that a pod never goes back and that a terminal phase is final (LIFE-1, LIFE-10).
// Unknown is read as no phase at all: it can be left, never entered (LIFE-9).
func (v checks) phaseChange(p *validation.Path, now, was string) {
	if phase.Follows(was, now) {
		return
	}
	if all := phase.All(); !slices.Contains(all, now) {
		v.OneOf(p, now, all...)
		return
	}
	v.Forbidden(p, fmt.Sprintf("may not change from %q to %q", was, now))
}

func (v checks) podConditions(p *validation.Path, list []*corev1.PodCondition) {
	for i, c := range list {
		if g := c.GetObservedGeneration(); g < 0 {
			v.InvalidValue(p.Index(i).Child("observedGeneration"), g, "must be a non-negative integer")
		}
		v.Qualified(p.Index(i).Child("Type"), c.GetType())
	}
}

func (v checks) nomination(p *validation.Path, now, was *corev1.PodStatus, bound bool) {
	name := now.GetNominatedNodeName()
	if name == "" || name == was.GetNominatedNodeName() {
		return
	}
	v.Subdomain(p, name)
	if bound {
		v.Forbidden(p, "may not be set on pods that are already bound to a node")
	}
}

func (v checks) addresses(p *validation.Path, now, was *corev1.PodStatus) {
	v.IPs(p.Child("podIPs"), podIPs(now), podIPs(was))
	hosts := hostIPs(now)
	if len(hosts) > 0 && hosts[0] != now.GetHostIP() {
		v.Invalid(p.Child("hostIPs").Index(0).Child("ip"), hosts[0], "must be equal to `hostIP`")
	}
	v.IPs(p.Child("hostIPs"), hosts, hostIPs(was))
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
func (v checks) statuses(p *validation.Path, now, was *corev1.PodStatus) {
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
					v.Forbidden(at.Index(i).Child("allocatedResourcesStatus"), "must not be specified in container status")
				}
				continue
			}
			v.health(at.Index(i).Child("allocatedResourcesStatus"), s, byName[s.GetName()])
		}
	}
}

// revivals refuses that a container which has ended and is not restarted is reported as anything else.
func (v checks) revivals(p *validation.Path, now, was []*corev1.ContainerStatus, byName map[string]*corev1.Container) {
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
			v.Forbidden(p.Index(i).Child("state"), "may not be transitioned to non-terminated state")
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
			if codes.GetOperator() == validation.OpIn && in || codes.GetOperator() == validation.OpNotIn && !in {
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

func (v checks) containerUser(p *validation.Path, u *corev1.LinuxContainerUser) {
	if u == nil {
		return
	}
	v.InvalidValue(p.Child("uid"), u.GetUid(), utilvalidation.IsValidUserID(u.GetUid())...)
	v.InvalidValue(p.Child("gid"), u.GetGid(), utilvalidation.IsValidGroupID(u.GetGid())...)
	for i, g := range u.GetSupplementalGroups() {
		v.InvalidValue(p.Child("supplementalGroups").Index(i), g, utilvalidation.IsValidGroupID(g)...)
	}
}

const maxHealthMessage = 1024

// health checks what is reported about the devices of a container.
func (v checks) health(p *validation.Path, s *corev1.ContainerStatus, c *corev1.Container) {
	for j, r := range s.GetAllocatedResourcesStatus() {
		at := p.Index(j)
		if c != nil {
			if _, ok := resources.ListOf(c.GetResources().GetRequests()).Get(r.GetName()); !ok {
				v.Invalid(at.Child("name"), r.GetName(), "must match one of the container's resource requests")
			}
		}
		seen := map[string]bool{}
		for k, d := range r.GetResources() {
			dp := at.Child("resources").Index(k)
			v.OneOf(dp.Child("health"), d.GetHealth(), "Healthy", "Unhealthy", "Unknown")
			if d != nil && d.Message != nil && d.GetMessage() == "" {
				v.Required(dp.Child("message"), "must be non-empty if specified")
			}
			if len(d.GetMessage()) > maxHealthMessage {
				v.TooLong(dp.Child("message"), maxHealthMessage)
			}
			if seen[d.GetResourceID()] {
				v.Duplicate(dp.Child("resourceID"), d.GetResourceID())
			}
			seen[d.GetResourceID()] = true
		}
	}
}
