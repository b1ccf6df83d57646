package quota

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "monoplane.dev/api/core/v1"
	eventsv1 "monoplane.dev/api/events/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"
	"monoplane.dev/object/storage"
	"monoplane.dev/rules/phase"
	"monoplane.dev/rules/resources"
)

const (
	requestsPrefix = "requests."
	limitsPrefix   = "limits."
	countPrefix    = "count/"
	// classInfix stands between the name of a storage class and what is limited of its claims.
	classInfix = ".storageclass.storage.k8s.io/"
	// deviceClass begins the names of devices that are requested as a resource.
	deviceClass = "deviceclass.resource.kubernetes.io/"

	loadBalancers = "services.loadbalancers"
	nodePorts     = "services.nodeports"
	storageSize   = "requests.storage"
)

// Counted says whether quotas count objects of a kind.
func Counted(kind *object.Kind) bool {
	return kind.Namespaced && kind != corev1.EventKind && kind != eventsv1.EventKind
}

// Limits says whether a resource that a quota limits is one that objects of a kind have.
func Limits(kind *object.Kind, name string) bool {
	if number, ok := strings.CutPrefix(name, countPrefix); ok {
		return number == kind.Resource()
	}
	switch kind {
	case corev1.PodKind:
		return ofPods(name)
	case corev1.ServiceKind:
		return name == "services" || name == loadBalancers || name == nodePorts
	case corev1.PersistentVolumeClaimKind:
		return name == kind.Plural || name == storageSize ||
			strings.HasSuffix(name, classInfix+kind.Plural) || strings.HasSuffix(name, classInfix+storageSize)
	case corev1.ConfigMapKind, corev1.ResourceQuotaKind, corev1.ReplicationControllerKind, corev1.SecretKind:
		return name == kind.Plural
	}
	return false
}

func ofPods(name string) bool {
	switch name {
	case "pods", resources.CPU, resources.Memory, resources.EphemeralStorage,
		"requests.cpu", "requests.memory", "requests.ephemeral-storage",
		"limits.cpu", "limits.memory", "limits.ephemeral-storage":
		return true
	}
	asked, isRequest := strings.CutPrefix(name, requestsPrefix)
	extended := !resources.IsNative(name) || strings.HasPrefix(asked, deviceClass)
	return resources.IsHugePages(asked) || isRequest && extended
}

// Counts says whether a quota with these limits counts an object.
func Counts(spec *corev1.ResourceQuotaSpec, o object.Object) bool {
	return LimitsKind(spec, o.ObjectKind()) && inScopes(spec, o)
}

// LimitsKind says whether a quota with these limits limits something that objects of a kind have.
func LimitsKind(spec *corev1.ResourceQuotaSpec, kind *object.Kind) bool {
	for name := range spec.GetHard() {
		if Limits(kind, name) {
			return true
		}
	}
	return false
}

// Of returns what an object takes, by every name under which it may be limited.
func Of(o object.Object, now time.Time) Usage {
	kind := o.ObjectKind()
	number := countPrefix + kind.Resource()
	switch o := o.(type) {
	case *corev1.Pod:
		return ofPod(o, number, now)
	case *corev1.Service:
		return ofService(o, number)
	case *corev1.PersistentVolumeClaim:
		return ofClaim(o, number)
	}
	if Limits(kind, kind.Plural) {
		return count(1, number, kind.Plural)
	}
	return count(1, number)
}

// ofPod returns what a pod takes. One that has ended, or that should be gone by now, is only there.
func ofPod(p *corev1.Pod, number string, now time.Time) Usage {
	if phase.Terminal(p) || overdue(p.GetMetadata(), now) {
		return count(1, number)
	}
	u := count(1, number, "pods")
	spec := resources.Held(p)
	for _, a := range resources.Requests(spec) {
		switch name := a.Name; {
		case name == resources.CPU, name == resources.Memory, name == resources.EphemeralStorage,
			resources.IsHugePages(name):
			u[name], u[requestsPrefix+name] = a.Quantity, a.Quantity
		case !resources.IsNative(name) && !strings.HasPrefix(name, requestsPrefix), strings.HasPrefix(name, deviceClass):
			u[requestsPrefix+name] = a.Quantity
		}
	}
	for _, a := range resources.Limits(p) {
		switch a.Name {
		case resources.CPU, resources.Memory, resources.EphemeralStorage:
			u[limitsPrefix+a.Name] = a.Quantity
		}
	}
	return u
}

// Due is when an object that is being deleted should be gone, as far as its own grace goes; zero for any other. Nobody
// pays any more after that for a pod whose node is lost.
func Due(m *metav1.ObjectMeta) time.Time {
	if m.GetDeletionTimestamp() == nil || m.DeletionGracePeriodSeconds == nil {
		return time.Time{}
	}
	grace := time.Duration(m.GetDeletionGracePeriodSeconds()) * time.Second
	return value.GoTime(m.GetDeletionTimestamp()).Add(grace)
}

func overdue(m *metav1.ObjectMeta, now time.Time) bool {
	due := Due(m)
	return !due.IsZero() && now.After(due)
}

func ofService(s *corev1.Service, number string) Usage {
	u := count(1, number, "services")
	ports, balancers := 0, int64(0)
	switch spec := s.GetSpec(); spec.GetType() {
	case "NodePort":
		ports = len(spec.GetPorts())
	case "LoadBalancer":
		balancers = 1
		for _, p := range spec.GetPorts() {
			if spec.AllocateLoadBalancerNodePorts == nil || *spec.AllocateLoadBalancerNodePorts || p.GetNodePort() != 0 {
				ports++
			}
		}
	}
	u.Add(count(balancers, loadBalancers))
	u.Add(count(int64(ports), nodePorts))
	return u
}

func ofClaim(c *corev1.PersistentVolumeClaim, number string) Usage {
	claims := corev1.PersistentVolumeClaimKind.Plural
	u := count(1, number, claims)
	class := storage.ClassOfClaim(c)
	if class != "" {
		u.Add(count(1, class+classInfix+claims))
	}
	size, ok := sizeOf(c)
	if !ok {
		return u
	}
	u[storageSize] = size
	if class != "" {
		u[class+classInfix+storageSize] = size
	}
	return u
}

// sizeOf is what a claim requests, or has been given when that is more, in whole bytes.
func sizeOf(c *corev1.PersistentVolumeClaim) (resource.Quantity, bool) {
	size, err := value.Quantity(c.GetSpec().GetResources().GetRequests()[resources.Storage])
	if err != nil || c.GetSpec().GetResources().GetRequests()[resources.Storage] == nil {
		return size, false
	}
	if text := c.GetStatus().GetAllocatedResources()[resources.Storage]; text != nil {
		if given, err := value.Quantity(text); err == nil && given.Cmp(size) > 0 {
			size = given
		}
	}
	size = size.DeepCopy()
	size.RoundUp(0)
	return size, true
}
