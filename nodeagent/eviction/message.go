package eviction

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/resources"
)

// Reason is the reason of pods that go, and of the event that says so.
const Reason = "Evicted"

// Message says why a pod goes: what the node runs out of, and which containers use more of it than they asked for.
func Message(t Threshold, r Readings, p *Pod) string {
	what := t.Signal.Resource()
	show := decimal
	if t.Signal.bytes() {
		show = binary
	}
	var b strings.Builder
	fmt.Fprintf(&b, "The node was low on resource: %s. ", what)
	if got, ok := r[t.Signal]; ok {
		fmt.Fprintf(&b, "Threshold quantity: %s, available: %s. ", show(t.Value.Of(got.Capacity)), show(got.Available))
	}
	if !p.Measured {
		return b.String()
	}
	spec := p.Pod.GetSpec()
	if q := spec.GetResources().GetRequests()["memory"]; what == "memory" && q != nil {
		asked, _ := resources.ListOf(spec.GetResources().GetRequests()).Get(what)
		fmt.Fprintf(&b, "Pod %s was using %s, request is %s, has larger consumption of %s. ",
			p.Pod.GetMetadata().GetName(), binary(p.Usage.Memory), asked.String(), what)
	}
	for _, c := range slices.Concat(spec.GetContainers(), spec.GetInitContainers()) {
		u, ok := p.Containers[c.GetName()]
		used := u.Memory
		switch what {
		case "memory":
		case "ephemeral-storage":
			used = u.Disk
		default:
			continue
		}
		asked, _ := resources.ListOf(c.GetResources().GetRequests()).Get(what)
		if ok && used > asked.Value() {
			fmt.Fprintf(&b, "Container %s was using %s, request is %s, has larger consumption of %s. ", c.GetName(),
				binary(used), asked.String(), what)
		}
	}
	return b.String()
}

// storage is the resource of local storage.
const storage = "ephemeral-storage"

// LimitsStorage reports whether a pod has a limit of local storage, so that it has to be measured.
func LimitsStorage(spec *corev1.PodSpec) bool {
	_, ok := StorageLimit(spec)
	return ok
}

// StorageLimit returns the limit of local storage that holds for the pod as a whole: the sum of those of its
// containers.
func StorageLimit(spec *corev1.PodSpec) (int64, bool) {
	q, ok := resources.ContainerLimits(spec).Get(storage)
	return q.Value(), ok && !q.IsZero()
}

// ContainerStorageLimit returns the limit of local storage of a container, which holds for its log and for what it
// writes in its root.
func ContainerStorageLimit(c *corev1.Container) (resource.Quantity, bool) {
	q, ok := resources.ListOf(c.GetResources().GetLimits()).Get(storage)
	return q, ok && !q.IsZero()
}

// Excess says by what a pod exceeds its limits of local storage; empty when it keeps within them. spec: DISR-6
func Excess(p *Pod) string {
	if !p.Measured {
		return ""
	}
	spec := p.Pod.GetSpec()
	if most, ok := StorageLimit(spec); ok && p.Usage.Disk > most {
		return fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", binary(most))
	}
	for _, c := range spec.GetContainers() {
		if most, ok := ContainerStorageLimit(c); ok && p.Containers[c.GetName()].Disk > most.Value() {
			return fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", c.GetName(), most.String())
		}
	}
	return ""
}
