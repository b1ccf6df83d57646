package core

import (
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
)

// ServiceAccount describes the kind.
func ServiceAccount(define.Config) define.Definition {
	return define.Definition{Strategy: registry.Typed[*corev1.ServiceAccount]{
		Kind:     corev1.ServiceAccountKind,
		Default:  DefaultServiceAccount,
		Validate: ValidateServiceAccount,
		Main:     registry.TypedResource[*corev1.ServiceAccount]{Validate: ValidateServiceAccountUpdate},
		Table: define.Columns[*corev1.ServiceAccount]{
			define.Any("Secrets", "Number of secrets.", func(o *corev1.ServiceAccount) any {
				return len(o.GetSecrets())
			}),
			define.Age[*corev1.ServiceAccount](),
		},
	}.Strategy()}
}

// DefaultServiceAccount fills in a service account.
func DefaultServiceAccount(s *corev1.ServiceAccount) {
	defaults.Message(&s.Metadata)
}

// ValidateServiceAccount checks a service account that is to be created.
func ValidateServiceAccount(s *corev1.ServiceAccount) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(s.GetMetadata(), nil, true, validation.NameIsSubdomain)
	}
	return f.Causes()
}

// ValidateServiceAccountUpdate checks that a change of a service account is allowed.
func ValidateServiceAccountUpdate(new, old *corev1.ServiceAccount) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(new.GetMetadata(), old.GetMetadata(), true, validation.NameIsSubdomain)
	}
	return f.Causes()
}
