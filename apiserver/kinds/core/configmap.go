package core

import (
	"bytes"
	"maps"
	"strconv"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
)

// ConfigMap describes the kind.
func ConfigMap(define.Config) define.Definition {
	return define.Definition{Strategy: registry.Typed[*corev1.ConfigMap]{
		Kind:     corev1.ConfigMapKind,
		Validate: ValidateConfigMap,
		Main:     registry.TypedUpdateRules[*corev1.ConfigMap]{Validate: ValidateConfigMapUpdate},
		Table: define.Columns[*corev1.ConfigMap]{
			define.Text("Data", "Number of keys.", func(o *corev1.ConfigMap) string {
				return strconv.Itoa(len(o.GetData()) + len(o.GetBinaryData()))
			}),
			define.Age[*corev1.ConfigMap](),
		},
	}.Strategy()}
}

// maxConfigMap is the most bytes that the values of a ConfigMap may have.
const maxConfigMap = 1 << 20

// ValidateConfigMap checks a ConfigMap that is to be created.
func ValidateConfigMap(c *corev1.ConfigMap) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		checkConfigMap(f, c, nil)
	}
	return f.Causes()
}

// ValidateConfigMapUpdate checks that a change of a ConfigMap is allowed; an immutable one keeps its data.
func ValidateConfigMapUpdate(new, old *corev1.ConfigMap) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		checkConfigMap(f, new, old)
		if !old.GetImmutable() {
			continue
		}
		const frozen = "field is immutable when `immutable` is set"
		if !new.GetImmutable() {
			f.Forbidden(f.Root("immutable"), frozen)
		}
		if !maps.Equal(new.GetData(), old.GetData()) {
			f.Forbidden(f.Root("data"), frozen)
		}
		if !maps.EqualFunc(new.GetBinaryData(), old.GetBinaryData(), bytes.Equal) {
			f.Forbidden(f.Root("binaryData"), frozen)
		}
	}
	return f.Causes()
}

func checkConfigMap(f *validation.Faults, c, old *corev1.ConfigMap) {
	f.CoreMeta(c.GetMetadata(), old.GetMetadata(), true, validation.NameIsSubdomain)
	total := 0
	for _, k := range validation.Sorted(&validation.Few{}, c.GetData()) {
		at := f.Root("data").Key(k)
		f.Invalid(at, k, utilvalidation.IsConfigMapKey(k)...)
		if _, ok := c.GetBinaryData()[k]; ok {
			f.Invalid(at, k, "duplicate of key present in binaryData")
		}
		total += len(c.GetData()[k])
	}
	for _, k := range validation.Sorted(&validation.Few{}, c.GetBinaryData()) {
		f.Invalid(f.Root("binaryData").Key(k), k, utilvalidation.IsConfigMapKey(k)...)
		total += len(c.GetBinaryData()[k])
	}
	if total > maxConfigMap {
		f.TooLong(f.Root(""), maxConfigMap)
	}
}
