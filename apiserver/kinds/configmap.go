package kinds

import (
	"strconv"

	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
)

func (Config) configMap() definition {
	return definition{strategy: registry.Typed[*corev1.ConfigMap]{
		Kind:     corev1.ConfigMapKind,
		Default:  defaults.ConfigMap,
		Validate: validation.ConfigMap,
		Main:     registry.TypedResource[*corev1.ConfigMap]{Validate: validation.ConfigMapUpdate},
		Table: columns[*corev1.ConfigMap]{
			{"Data", "string", 0, "Number of keys.", func(o *corev1.ConfigMap, _ moment) any {
				return strconv.Itoa(len(o.GetData()) + len(o.GetBinaryData()))
			}},
			age[*corev1.ConfigMap](),
		},
	}.Strategy()}
}
