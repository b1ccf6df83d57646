package pod

import (
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
)

// applyResize: a resize changes what the containers, and the pod as a whole, ask for and nothing else (OBJ-10).
// Containers that are other ones than before are kept as they are asked for, so that validation can say what is wrong.
func applyResize(asked, live *corev1.Pod) *corev1.Pod {
	next := &corev1.Pod{Metadata: object.Clone(asked.GetMetadata()), Spec: object.Clone(asked.GetSpec())}
	Default(next)
	next.Status = live.Status
	was := live.GetSpec()
	if len(next.Spec.Containers) != len(was.GetContainers()) ||
		len(next.Spec.InitContainers) != len(was.GetInitContainers()) {
		return next
	}
	spec := was.Shallow()
	spec.Containers = resized(next.Spec.Containers, was.GetContainers())
	spec.InitContainers = resized(next.Spec.InitContainers, was.GetInitContainers())
	spec.Resources = next.Spec.Resources
	next.Spec = spec
	return next
}

// resized returns the containers with the resources that are asked for, as many as there were.
func resized(asked, was []*corev1.Container) []*corev1.Container {
	next := make([]*corev1.Container, len(was))
	for i, c := range was {
		if asked[i].GetName() != c.GetName() {
			return asked
		}
		next[i] = c.Shallow()
		next[i].Resources, next[i].ResizePolicy = asked[i].GetResources(), asked[i].GetResizePolicy()
	}
	return next
}
