package pod

import (
	"cmp"
	"maps"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/kinds/core/podspec"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/rules/initcontainer"
	"monoplane.dev/rules/qos"
	"monoplane.dev/rules/resources"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// ValidateResize checks that a change of what containers ask for is allowed: the new pod is valid and of the same
// quality of service, and only cpu and memory have other amounts (OBJ-10). Status is not looked at, but for what it
// says about the node. The caller has put back everything else that the resize subresource does not change.
func ValidateResize(new, old *corev1.Pod) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		if _, mirror := old.GetMetadata().GetAnnotations()[podspec.AnnotationMirror]; mirror {
			f.Forbidden(nil, "static pods cannot be resized")
			continue
		}
		if old.GetSpec().GetOs().GetName() == "windows" {
			f.Forbidden(nil, "windows pods cannot be resized")
			continue
		}
		f.ObjectMetaUpdate(new.GetMetadata(), old.GetMetadata())
		v := check(f, new, true)
		p := f.Root("spec")
		if qos.Of(old) != qos.Compute(new.GetSpec()) {
			v.Invalid(p, new.GetStatus().GetQosClass(), "Pod QOS Class may not change as a result of resizing")
		}
		if !nodeResizes(old) {
			v.Forbidden(p, "Pod running on node without support for resize")
		}
		was := old.GetSpec()
		v.resizesWhole(p, was.GetResources())
		app := v.resizable(p.Child("containers"), "containers", v.spec.GetContainers(), was.GetContainers())
		init := v.resizable(p.Child("initContainers"), "initContainers", v.spec.GetInitContainers(), was.GetInitContainers())
		if app && init {
			v.resizes(p, was)
		}
		if now := new.GetSpec().GetResources(); f.Count() == 0 && (now == nil) != (was.GetResources() == nil) && !asks(now) {
			v.Forbidden(p, "only cpu and memory resources are mutable")
		}
	}
	return f.Causes()
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

// resizesWhole checks what is asked for the pod as a whole.
func (v checks) resizesWhole(p *validation.Path, was *corev1.ResourceRequirements) {
	now, at := v.spec.GetResources(), p.Child("resources")
	switch {
	case !asks(now) && !asks(was):
		return
	case now == nil:
		v.Forbidden(at, "pod-level resources cannot be removed")
		return
	}
	if removed(now.GetRequests(), was.GetRequests()) {
		v.Forbidden(at.Child("requests"), "pod-level resource requests cannot be removed")
	}
	if removed(now.GetLimits(), was.GetLimits()) {
		v.Forbidden(at.Child("limits"), "pod-level resource limits cannot be removed")
	}
	if !validation.Equal(withAmounts(now, was), cmp.Or(was, &corev1.ResourceRequirements{})) {
		v.Forbidden(p, "only cpu and memory resources are mutable at pod-level")
	}
}

func asks(r *corev1.ResourceRequirements) bool { return len(r.GetRequests())+len(r.GetLimits()) > 0 }

// resizable checks that the containers are the same ones in the same order.
func (v checks) resizable(p *validation.Path, list string, now, was []*corev1.Container) bool {
	if len(now) != len(was) {
		v.Forbidden(p, list+" may not be added or removed on resize")
		return false
	}
	same := true
	for i := range was {
		if now[i].GetName() != was[i].GetName() {
			v.Forbidden(p.Index(i).Child("name"), list+" may not be renamed or reordered on resize")
			same = false
		}
	}
	return same
}

// resizes checks the containers, which are as many as before.
func (v checks) resizes(p *validation.Path, was *corev1.PodSpec) {
	for i, c := range v.spec.GetInitContainers() {
		at, before := p.Child("initContainers").Index(i), was.GetInitContainers()[i]
		v.nothingRemoved(at.Child("resources"), c.GetResources(), before.GetResources())
		if !sameButAmounts(c, before) {
			v.Forbidden(at, "only cpu and memory resources for init or sidecar containers are mutable")
		}
		if !initcontainer.IsSidecar(c) && !validation.Equal(c, before) {
			for _, r := range c.GetResizePolicy() {
				if r.GetRestartPolicy() == "RestartContainer" {
					v.Forbidden(at, "non-sidecar init containers with a resize policy of RestartContainer cannot be resized")
				}
			}
		}
	}
	for i, c := range v.spec.GetContainers() {
		before := was.GetContainers()[i]
		v.nothingRemoved(p.Child("containers").Index(i).Child("resources"), c.GetResources(), before.GetResources())
		if !sameButAmounts(c, before) {
			v.Forbidden(p, "only cpu and memory resources are mutable")
		}
	}
}

// nothingRemoved refuses to let go of an amount, which would change the kind of promise that the container has.
func (v checks) nothingRemoved(p *validation.Path, now, was *corev1.ResourceRequirements) {
	if removed(now.GetRequests(), was.GetRequests()) {
		v.Forbidden(p.Child("requests"), "resource requests cannot be removed")
	}
	if removed(now.GetLimits(), was.GetLimits()) {
		v.Forbidden(p.Child("limits"), "resource limits cannot be removed")
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
	if validation.Equal(now, was) {
		return true
	}
	m := new(corev1.Container)
	m.SetShallow(now)
	m.Resources = withAmounts(now.GetResources(), was.GetResources())
	return validation.Equal(m, was)
}

// withAmounts returns now with the amounts of cpu and memory of was.
func withAmounts(now, was *corev1.ResourceRequirements) *corev1.ResourceRequirements {
	r := new(corev1.ResourceRequirements)
	if now != nil {
		r.SetShallow(now)
	}
	r.Requests = withAmountsOf(now.GetRequests(), was.GetRequests())
	r.Limits = withAmountsOf(now.GetLimits(), was.GetLimits())
	return r
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
