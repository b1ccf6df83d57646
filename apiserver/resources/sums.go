package resources

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// Names of resources that have rules of their own.
const (
	CPU              = "cpu"
	Memory           = "memory"
	EphemeralStorage = "ephemeral-storage"
	Storage          = "storage"
	// HugePagesPrefix begins the names of huge pages by size, such as "hugepages-2Mi".
	HugePagesPrefix = "hugepages-"
)

// IsHugePages says whether name is a size of huge pages.
func IsHugePages(name string) bool { return strings.HasPrefix(name, HugePagesPrefix) }

// IsNative says whether name belongs to Kubernetes itself: without a prefix, or in kubernetes.io.
func IsNative(name string) bool {
	return !strings.Contains(name, "/") || strings.Contains(name, "kubernetes.io/")
}

// CanOvercommit says whether requests may be lower than limits.
func CanOvercommit(name string) bool { return IsNative(name) && !IsHugePages(name) }

// ForPods says whether a resource can be requested for a pod as a whole.
func ForPods(name string) bool { return name == CPU || name == Memory || IsHugePages(name) }

// List holds amounts by resource name.
type List map[string]resource.Quantity

// ListOf reads a map of quantities, without those that cannot be read.
func ListOf(m map[string]*metav1.Quantity) List {
	if len(m) == 0 {
		return nil
	}
	l := make(List, len(m))
	for name, text := range m {
		if q, err := Parse(text); err == nil {
			l[name] = q
		}
	}
	return l
}

func (l List) add(m List) {
	for name, q := range m {
		sum := l[name].DeepCopy()
		sum.Add(q)
		l[name] = sum
	}
}

func (l List) raise(m List) {
	for name, q := range m {
		if have, ok := l[name]; !ok || q.Cmp(have) > 0 {
			l[name] = q.DeepCopy()
		}
	}
}

// Requests returns what the containers of a pod request together at most at any time (INIT-3): app
// containers and sidecars run together; each plain init container runs with the sidecars before it.
// Overhead and requests of the pod as a whole are not in it.
func Requests(spec *corev1.PodSpec) List {
	return sum(spec, (*corev1.ResourceRequirements).GetRequests)
}

// Limits is Requests for limits.
func Limits(spec *corev1.PodSpec) List { return sum(spec, (*corev1.ResourceRequirements).GetLimits) }

func sum(spec *corev1.PodSpec, of func(*corev1.ResourceRequirements) map[string]*metav1.Quantity) List {
	total, sidecars, initial := List{}, List{}, List{}
	for _, c := range spec.GetContainers() {
		total.add(ListOf(of(c.GetResources())))
	}
	for _, c := range spec.GetInitContainers() {
		own := ListOf(of(c.GetResources()))
		if c.GetRestartPolicy() == "Always" {
			total.add(own)
			sidecars.add(own)
			initial.raise(sidecars)
			continue
		}
		together := List{}
		together.add(own)
		together.add(sidecars)
		initial.raise(together)
	}
	total.raise(initial)
	return total
}
