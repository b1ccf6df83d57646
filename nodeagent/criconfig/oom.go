package criconfig

import (
	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/initcontainer"
	"monoplane.dev/rules/qos"
	podlevel "monoplane.dev/rules/resources"
)

const (
	// guaranteedScore goes to those that are to be the last to be killed when memory runs out, but for the agent itself.
	guaranteedScore = -997
	// bestEffortScore goes to those that are to be the first.
	bestEffortScore = 1000

	systemNodeCritical = "system-node-critical"
	systemCritical     = 2_000_000_000
	mirrorAnnotation   = "kubernetes.io/config.mirror"
	sourceAnnotation   = "kubernetes.io/config.source"
	sourceAPI          = "api"
)

// oomScoreAdj returns how much likelier, up to 1000, or less likely, down to -1000, the kernel is to kill a container
// of the pod when the node, which has so many bytes, runs out of memory. In between it is the share of the memory that
// the container does not request: one that uses more than it has requested is then killed before one that does not.
// spec: QOS-3
func oomScoreAdj(p *corev1.Pod, c *corev1.Container, memory int64) int64 {
	switch class := qos.Of(p); {
	case nodeCritical(p), class == qos.Guaranteed:
		return guaranteedScore
	case class == qos.BestEffort:
		return bestEffortScore
	case memory <= 0: // it is not known what a share would be of
		return bestEffortScore - 1
	}
	spec := p.GetSpec()
	rest := memoryForAll(spec)
	score := 1000 - 1000*(memoryRequest(c)+rest)/memory
	if isSidecar(spec, c) {
		// A sidecar is no likelier to be killed than what it serves.
		least := memoryRequest(spec.GetContainers()[0])
		for _, other := range spec.GetContainers()[1:] {
			least = min(least, memoryRequest(other))
		}
		score = min(score, 1000-1000*(least+rest)/memory)
	}
	if score == bestEffortScore {
		return bestEffortScore - 1 // those that ask for something come after those that do not
	}
	return max(score, 1000+guaranteedScore)
}

// memoryForAll returns each container's part of the memory that is requested for the pod as a whole, but by no
// container.
func memoryForAll(spec *corev1.PodSpec) int64 {
	whole := amount(spec.GetResources().GetRequests(), podlevel.Memory)
	if whole == 0 || !podlevel.ForWhole(spec) {
		return 0
	}
	all, _ := podlevel.ContainerRequests(spec).Get(podlevel.Memory)
	return (whole - all.Value()) / int64(len(spec.GetContainers())+len(spec.GetInitContainers()))
}

func memoryRequest(c *corev1.Container) int64 {
	return amount(c.GetResources().GetRequests(), podlevel.Memory)
}

// isSidecar reports whether c is a sidecar of the pod, and not one of its other containers.
func isSidecar(spec *corev1.PodSpec, c *corev1.Container) bool {
	if !initcontainer.IsSidecar(c) || len(spec.GetContainers()) == 0 {
		return false
	}
	for _, i := range spec.GetInitContainers() {
		if i.GetName() == c.GetName() {
			return true
		}
	}
	return false
}

// nodeCritical reports whether the node is of no use without the pod.
func nodeCritical(p *corev1.Pod) bool {
	if p.GetSpec().GetPriorityClassName() != systemNodeCritical {
		return false
	}
	a := p.GetMetadata().GetAnnotations()
	_, mirror := a[mirrorAnnotation]
	source, ok := a[sourceAnnotation]
	return mirror || ok && source != sourceAPI || p.GetSpec().GetPriority() >= systemCritical
}
