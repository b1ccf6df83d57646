package controller

import (
	"fmt"

	corev1 "monoplane.dev/api/core/v1"
	discoveryv1 "monoplane.dev/api/discovery/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/object"
	"monoplane.dev/object/storage"
	"monoplane.dev/rules/endpoint"
)

// The indexes of caches. An object to which one does not apply is not in it.
const (
	// ByController finds objects of any kind by the uid of the owner that manages them, the one with controller=true.
	ByController = "controller"
	// ByNamespace finds the objects of a namespace, of any kind.
	ByNamespace = "namespace"
	// Unmanaged finds the objects of a namespace that no owner manages, and which one may adopt, of any kind.
	Unmanaged = "unmanaged"
	// ByNode finds pods by the name of the node to which they are bound.
	ByNode = "node"
	// ByClaim finds pods by the persistent volume claims that they use, "NAMESPACE/NAME".
	ByClaim = "claim"
	// ByService finds EndpointSlices by the service whose endpoints they hold, "NAMESPACE/NAME".
	ByService = "service"
)

// Indexes returns indexes for a cache of one's own. It panics when a kind has no index of the name.
func Indexes[T object.Object](names ...string) map[string]func(T) []string {
	out := make(map[string]func(T) []string, len(names))
	for _, name := range names {
		out[name] = indexOf[T](name)
	}
	return out
}

// indexOf returns the values under which an index finds an object.
func indexOf[T object.Object](name string) func(T) []string {
	var of any
	switch name {
	case ByController:
		return func(o T) []string { return unlessEmpty(ManagerOf(o).GetUid()) }
	case ByNamespace:
		return namespaceOf[T]
	case Unmanaged:
		return func(o T) []string {
			if ManagerOf(o) != nil {
				return nil
			}
			return namespaceOf(o)
		}
	case ByNode:
		of = func(p *corev1.Pod) []string { return unlessEmpty(p.GetSpec().GetNodeName()) }
	case ByClaim:
		of = claimsOf
	case ByService:
		of = serviceOf
	}
	f, ok := of.(func(T) []string)
	if !ok {
		var none T
		panic(fmt.Sprintf("controller: kind %s has no index %q", none.ObjectKind().Kind, name))
	}
	return f
}

func claimsOf(p *corev1.Pod) []string {
	var keys []string
	for _, name := range storage.ClaimNames(p) {
		keys = append(keys, cache.Key{Namespace: p.GetMetadata().GetNamespace(), Name: name}.String())
	}
	return keys
}

func serviceOf(s *discoveryv1.EndpointSlice) []string {
	m := s.GetMetadata()
	name := m.GetLabels()[endpoint.ServiceName]
	if name == "" {
		return nil
	}
	return []string{cache.Key{Namespace: m.GetNamespace(), Name: name}.String()}
}

// ManagerOf returns the reference to the owner that manages o, the one with controller=true; nil for none.
func ManagerOf(o object.Object) *metav1.OwnerReference {
	for _, r := range o.GetMetadata().GetOwnerReferences() {
		if r.GetController() {
			return r
		}
	}
	return nil
}

func namespaceOf[T object.Object](o T) []string { return unlessEmpty(o.GetMetadata().GetNamespace()) }

func unlessEmpty(value string) []string {
	if value == "" {
		return nil
	}
	return []string{value}
}
