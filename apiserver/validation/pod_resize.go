package validation

import (
	"maps"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/rules/initcontainer"
	"monoplane.dev/rules/qos"
	"monoplane.dev/rules/resources"
)

// PodResize checks that a change of what containers ask for is allowed: the new pod is valid and of the same quality
// of service, and only cpu and memory have other amounts (OBJ-10). Status is not looked at, but for what it says about
// the node. The caller has put back everything else that the resize subresource does not change.
func PodResize(new, old *corev1.Pod) []apierrors.Cause {
	var f faults
	for f.pass() {
		if _, mirror := old.GetMetadata().GetAnnotations()[annotationMirror]; mirror {
			f.forbidden(nil, "static pods cannot be resized")
			continue
		}
		if old.GetSpec().GetOs().GetName() == "windows" {
			f.forbidden(nil, "windows pods cannot be resized")
			continue
		}
		f.objectMetaUpdate(new.GetMetadata(), old.GetMetadata())
		v := f.pod(new, true)
		p := f.root("spec")
		if qos.Of(old) != qos.Compute(new.GetSpec()) {
			f.invalid(p, new.GetStatus().GetQosClass(), "Pod QOS Class may not change as a result of resizing")
		}
		if !nodeResizes(old) {
			f.forbidden(p, "Pod running on node without support for resize")
		}
		app := v.resizable(p.Child("containers"), "containers", v.spec.GetContainers(), old.GetSpec().GetContainers())
		init := v.resizable(p.Child("initContainers"), "initContainers", v.spec.GetInitContainers(), old.GetSpec().GetInitContainers())
		if app && init {
			v.resizes(p, old.GetSpec())
		}
	}
	return f.causes()
}

// nodeResizes says whether the node that runs the pod knows how to resize it: then it reports, for running containers,
// which resources they have. While nothing runs, the node will begin with what it finds.
func nodeResizes(p *corev1.Pod) bool {
	for _, c := range p.GetStatus().GetContainerStatuses() {
		if c.GetState().GetRunning() != nil {
			return c.GetResources() != nil
		}
	}
	return true
}

// resizable checks that the containers are the same ones in the same order.
func (v *pod) resizable(p *fieldPath, list string, now, was []*corev1.Container) bool {
	if len(now) != len(was) {
		v.forbidden(p, list+" may not be added or removed on resize")
		return false
	}
	same := true
	for i := range was {
		if now[i].GetName() != was[i].GetName() {
			v.forbidden(p.Index(i).Child("name"), list+" may not be renamed or reordered on resize")
			same = false
		}
	}
	return same
}

// resizes checks the containers, which are as many as before.
func (v *pod) resizes(p *fieldPath, was *corev1.PodSpec) {
	for i, c := range v.spec.GetInitContainers() {
		at, before := p.Child("initContainers").Index(i), was.GetInitContainers()[i]
		v.nothingRemoved(at.Child("resources"), c.GetResources(), before.GetResources())
		if !sameButAmounts(c, before) {
			v.forbidden(at, "only cpu and memory resources for init or sidecar containers are mutable")
		}
		if !initcontainer.IsSidecar(c) && !Equal(c, before) {
			for _, r := range c.GetResizePolicy() {
				if r.GetRestartPolicy() == "RestartContainer" {
					v.forbidden(at, "non-sidecar init containers with a resize policy of RestartContainer cannot be resized")
				}
			}
		}
	}
	for i, c := range v.spec.GetContainers() {
		before := was.GetContainers()[i]
		v.nothingRemoved(p.Child("containers").Index(i).Child("resources"), c.GetResources(), before.GetResources())
		if !sameButAmounts(c, before) {
			v.forbidden(p, "only cpu and memory resources are mutable")
		}
	}
}

// nothingRemoved refuses to let go of an amount, which would change the kind of promise that the container has.
func (v *pod) nothingRemoved(p *fieldPath, now, was *corev1.ResourceRequirements) {
	if removed(now.GetRequests(), was.GetRequests()) {
		v.forbidden(p.Child("requests"), "resource requests cannot be removed")
	}
	if removed(now.GetLimits(), was.GetLimits()) {
		v.forbidden(p.Child("limits"), "resource limits cannot be removed")
	}
}

func removed(now, was map[string]*metav1.Quantity) bool {
	for name := range was {
		if _, ok := now[name]; !ok {
			return true
		}
	}
	return false
}

// sameButAmounts says whether two containers differ in nothing but the amounts of cpu and memory.
func sameButAmounts(now, was *corev1.Container) bool {
	if Equal(now, was) {
		return true
	}
	m, r := new(corev1.Container), new(corev1.ResourceRequirements)
	m.SetShallow(now)
	if now.GetResources() != nil {
		r.SetShallow(now.GetResources())
	}
	r.Requests = withAmountsOf(now.GetResources().GetRequests(), was.GetResources().GetRequests())
	r.Limits = withAmountsOf(now.GetResources().GetLimits(), was.GetResources().GetLimits())
	m.Resources = r
	return Equal(m, was)
}

// withAmountsOf returns now with the cpu and memory of was.
func withAmountsOf(now, was map[string]*metav1.Quantity) map[string]*metav1.Quantity {
	m := maps.Clone(now)
	for _, name := range [...]string{resources.CPU, resources.Memory} {
		delete(m, name)
		if q, ok := was[name]; ok {
			if m == nil {
				m = make(map[string]*metav1.Quantity, 2)
			}
			m[name] = q
		}
	}
	return m
}
