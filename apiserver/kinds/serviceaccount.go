package kinds

import (
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
)

func (Config) serviceAccount() definition {
	return definition{strategy: registry.Typed[*corev1.ServiceAccount]{
		Kind:     corev1.ServiceAccountKind,
		Default:  defaults.ServiceAccount,
		Validate: validation.ServiceAccount,
		Main:     registry.TypedResource[*corev1.ServiceAccount]{Validate: validation.ServiceAccountUpdate},
		Table: columns[*corev1.ServiceAccount]{
			{"Secrets", "string", 0, "Number of secrets.", func(o *corev1.ServiceAccount, _ moment) any {
				return len(o.GetSecrets())
			}},
			age[*corev1.ServiceAccount](),
		},
	}.Strategy()}
}
