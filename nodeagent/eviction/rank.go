package eviction

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/resources"
)

// Usage is what a pod, or one of its containers, uses.
type Usage struct {
	// Memory is the working set, in bytes.
	Memory int64
	// Disk is what logs and the writable layer take, and of a pod its volumes on the node's disk too, in bytes; Inodes
	// the files.
	Disk, Inodes int64
	// Processes of a pod.
	Processes int64
}

// Pod is a pod that may have to go.
type Pod struct {
	Pod *corev1.Pod
	// Critical says that the system depends on it: it never goes.
	Critical bool
	// Measured says that Usage is known. What is not measured goes first.
	Measured bool
	Usage    Usage
	// Containers is by name.
	Containers map[string]Usage
}

// requested returns what a pod asks for of a resource.
func requested(p *corev1.Pod, name string) int64 {
	q, _ := resources.Requests(p.GetSpec()).Get(name)
	return q.Value()
}

// used returns what counts at a signal.
func (p *Pod) used(s Signal) int64 {
	switch s.Resource() {
	case "memory":
		return p.Usage.Memory
	case "ephemeral-storage":
		return p.Usage.Disk
	case "inodes":
		return p.Usage.Inodes
	default:
		return p.Usage.Processes
	}
}

// excess returns by how much a pod exceeds what it asked for. Nobody asks for inodes, so that storage stands for them,
// as it does with kubelets.
func (p *Pod) excess(s Signal) int64 {
	name := s.Resource()
	if name == "inodes" {
		name = "ephemeral-storage"
	}
	return p.used(s) - requested(p.Pod, name)
}

// exceeds reports whether a pod uses more than it asked for.
func (p *Pod) exceeds(s Signal) bool { return p.used(s) > requested(p.Pod, s.Resource()) }

// Rank orders pods for the eviction because of a signal: the first goes first. spec: QOS-2
func Rank(s Signal, pods []Pod) {
	first := func(a, b bool) int { // true before false
		switch {
		case a == b:
			return 0
		case a:
			return -1
		default:
			return 1
		}
	}
	slices.SortStableFunc(pods, func(a, b Pod) int {
		important := cmp.Compare(a.Pod.GetSpec().GetPriority(), b.Pod.GetSpec().GetPriority())
		if s == PIDs {
			return cmp.Or(important, first(!a.Measured, !b.Measured), cmp.Compare(b.used(s), a.used(s)))
		}
		if !a.Measured || !b.Measured {
			return cmp.Or(first(!a.Measured, !b.Measured), important)
		}
		return cmp.Or(first(a.exceeds(s), b.exceeds(s)), important, cmp.Compare(b.excess(s), a.excess(s)))
	})
}

// First returns the pod that goes first, nil when none may.
func First(s Signal, pods []Pod) *Pod {
	pods = slices.DeleteFunc(slices.Clone(pods), func(p Pod) bool { return p.Critical })
	if len(pods) == 0 {
		return nil
	}
	Rank(s, pods)
	return &pods[0]
}

func binary(n int64) string  { return resource.NewQuantity(n, resource.BinarySI).String() }
func decimal(n int64) string { return resource.NewQuantity(n, resource.DecimalSI).String() }
