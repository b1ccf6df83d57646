package core

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/labels"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/core/podspec"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
)

// PodTemplate describes the kind.
func PodTemplate(define.Config) define.Definition {
	return define.Definition{Strategy: registry.Typed[*corev1.PodTemplate]{
		Kind:     corev1.PodTemplateKind,
		Spec:     func(o *corev1.PodTemplate) proto.Message { return o.GetTemplate() },
		Default:  DefaultPodTemplate,
		Validate: ValidatePodTemplate,
		Warn: func(next, live *corev1.PodTemplate) validation.Warnings {
			if live != nil && validation.Equal(next.GetTemplate(), live.GetTemplate()) {
				return nil
			}
			return podspec.WarningsOfTemplate(validation.NewPath("template"), next.GetTemplate())
		},
		Main: registry.TypedUpdateRules[*corev1.PodTemplate]{Validate: ValidatePodTemplateUpdate},
		Table: define.Columns[*corev1.PodTemplate]{
			define.Text("Containers", "Names of the containers.", func(o *corev1.PodTemplate) string {
				return ofContainers(o, (*corev1.Container).GetName)
			}),
			define.Text("Images", "Images of the containers.", func(o *corev1.PodTemplate) string {
				return ofContainers(o, (*corev1.Container).GetImage)
			}),
			define.Text("Pod Labels", "Labels of the pods.", func(o *corev1.PodTemplate) string {
				return labels.FormatLabels(o.GetTemplate().GetMetadata().GetLabels())
			}),
		},
	}.Strategy()}
}

// ofContainers lists something of each container.
func ofContainers(o *corev1.PodTemplate, of func(*corev1.Container) string) string {
	var list []string
	for _, c := range o.GetTemplate().GetSpec().GetContainers() {
		list = append(list, of(c))
	}
	return strings.Join(list, ",")
}

// DefaultPodTemplate fills in a pod template.
func DefaultPodTemplate(t *corev1.PodTemplate) {
	defaults.Message(&t.Metadata)
	defaults.Message(&t.Template)
	podspec.DefaultTemplate(t.Template)
}

// ValidatePodTemplate checks a pod template that is to be created.
func ValidatePodTemplate(t *corev1.PodTemplate) []apierrors.Cause {
	return ValidatePodTemplateUpdate(t, nil)
}

// ValidatePodTemplateUpdate checks that a change of a pod template is allowed. All of the template may change.
func ValidatePodTemplateUpdate(new, old *corev1.PodTemplate) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(new.GetMetadata(), old.GetMetadata(), true, validation.NameIsSubdomain)
		podspec.CheckTemplate(f, f.Root("template"), new.GetTemplate())
	}
	return f.Causes()
}
