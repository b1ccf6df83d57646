package validation

import (
	"bytes"
	"maps"

	"k8s.io/apimachinery/pkg/util/validation"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
)

// Namespace checks a namespace that is to be created.
func Namespace(n *corev1.Namespace) []apierrors.Cause {
	var f faults
	for f.pass() {
		f.core(n.GetMetadata(), nil, false, NameIsLabel)
		for _, name := range n.GetSpec().GetFinalizers() {
			f.qualified(f.root("spec").Child("finalizers"), name)
			f.coreFinalizer(f.root("spec").Child("finalizers"), name)
		}
	}
	return f.causes()
}

// NamespaceUpdate checks that a change of a namespace is allowed. Spec and status have subresources of
// their own and are not looked at.
func NamespaceUpdate(new, old *corev1.Namespace) []apierrors.Cause {
	var f faults
	for f.pass() {
		f.core(new.GetMetadata(), old.GetMetadata(), false, NameIsLabel)
	}
	return f.causes()
}

// NamespaceStatusUpdate checks that a namespace is terminating exactly when it is being deleted (NS-1).
func NamespaceStatusUpdate(new, old *corev1.Namespace) []apierrors.Cause {
	var f faults
	for f.pass() {
		f.core(new.GetMetadata(), old.GetMetadata(), false, NameIsLabel)
		p, phase := f.root("status").Child("Phase"), new.GetStatus().GetPhase()
		switch deleted := new.GetMetadata().GetDeletionTimestamp() != nil; {
		case !deleted && phase != "Active":
			f.invalid(p, phase, "may only be 'Active' if `deletionTimestamp` is empty")
		case deleted && phase != "Terminating":
			f.invalid(p, phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")
		}
	}
	return f.causes()
}

// NamespaceFinalizeUpdate checks the finalizers that a write to the finalize subresource leaves.
func NamespaceFinalizeUpdate(new, old *corev1.Namespace) []apierrors.Cause {
	var f faults
	for f.pass() {
		f.core(new.GetMetadata(), old.GetMetadata(), false, NameIsLabel)
		for i, name := range new.GetSpec().GetFinalizers() {
			at := f.root("spec").Child("finalizers").Index(i)
			f.qualified(at, name)
			f.coreFinalizer(at, name)
		}
	}
	return f.causes()
}

// core checks the metadata of an object of the core group, or of another that takes its rules, against its old metadata
// unless it is new.
func (f *faults) core(m, old *metav1.ObjectMeta, namespaced bool, name NameFunc) {
	if old != nil {
		f.objectMetaUpdate(m, old)
	}
	f.objectMeta(m, namespaced, name)
	f.coreFinalizers(m.GetFinalizers())
}

// ServiceAccount checks a service account that is to be created.
func ServiceAccount(s *corev1.ServiceAccount) []apierrors.Cause {
	var f faults
	for f.pass() {
		f.core(s.GetMetadata(), nil, true, NameIsSubdomain)
	}
	return f.causes()
}

// ServiceAccountUpdate checks that a change of a service account is allowed.
func ServiceAccountUpdate(new, old *corev1.ServiceAccount) []apierrors.Cause {
	var f faults
	for f.pass() {
		f.core(new.GetMetadata(), old.GetMetadata(), true, NameIsSubdomain)
	}
	return f.causes()
}

// maxConfigMap is the most bytes that the values of a ConfigMap may have.
const maxConfigMap = 1 << 20

// ConfigMap checks a ConfigMap that is to be created.
func ConfigMap(c *corev1.ConfigMap) []apierrors.Cause {
	var f faults
	for f.pass() {
		f.configMap(c, nil)
	}
	return f.causes()
}

// ConfigMapUpdate checks that a change of a ConfigMap is allowed; an immutable one keeps its data.
func ConfigMapUpdate(new, old *corev1.ConfigMap) []apierrors.Cause {
	var f faults
	for f.pass() {
		f.configMap(new, old)
		if !old.GetImmutable() {
			continue
		}
		const frozen = "field is immutable when `immutable` is set"
		if !new.GetImmutable() {
			f.forbidden(f.root("immutable"), frozen)
		}
		if !maps.Equal(new.GetData(), old.GetData()) {
			f.forbidden(f.root("data"), frozen)
		}
		if !maps.EqualFunc(new.GetBinaryData(), old.GetBinaryData(), bytes.Equal) {
			f.forbidden(f.root("binaryData"), frozen)
		}
	}
	return f.causes()
}

func (f *faults) configMap(c, old *corev1.ConfigMap) {
	f.core(c.GetMetadata(), old.GetMetadata(), true, NameIsSubdomain)
	total := 0
	for _, k := range sorted(&few{}, c.GetData()) {
		at := f.root("data").Key(k)
		f.invalid(at, k, validation.IsConfigMapKey(k)...)
		if _, ok := c.GetBinaryData()[k]; ok {
			f.invalid(at, k, "duplicate of key present in binaryData")
		}
		total += len(c.GetData()[k])
	}
	for _, k := range sorted(&few{}, c.GetBinaryData()) {
		f.invalid(f.root("binaryData").Key(k), k, validation.IsConfigMapKey(k)...)
		total += len(c.GetBinaryData()[k])
	}
	if total > maxConfigMap {
		f.tooLong(f.root(""), maxConfigMap)
	}
}

// Binding checks a binding of a pod to a node. Whether the pod may be bound is decided where it is stored.
func Binding(b *corev1.Binding) []apierrors.Cause {
	var f faults
	for f.pass() {
		p := f.root("target")
		switch t := b.GetTarget(); {
		case t.GetName() == "":
			f.required(p.Child("name"), "")
		default:
			f.subdomain(p.Child("name"), t.GetName())
		}
		if k := b.GetTarget().GetKind(); k != "" && k != "Node" {
			f.oneOf(p.Child("kind"), k, "Node", "<empty>")
		}
	}
	return f.causes()
}
