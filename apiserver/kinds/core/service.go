package core

import (
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
)

// Service describes the kind.
func Service(define.Config) define.Definition {
	return define.Definition{Strategy: registry.Typed[*corev1.Service]{
		Kind:       corev1.ServiceKind,
		Default:    DefaultService,
		DefaultNew: DefaultNewService,
		Main: registry.TypedUpdateRules[*corev1.Service]{
			Apply: func(asked, live *corev1.Service) *corev1.Service {
				next := &corev1.Service{Metadata: object.Clone(asked.GetMetadata()), Spec: object.Clone(asked.GetSpec())}
				DefaultService(next)
				next.Status = live.Status
				return next
			},
		},
		Subresources: map[string]registry.TypedUpdateRules[*corev1.Service]{
			"status": {
				Apply: func(asked, live *corev1.Service) *corev1.Service {
					next := &corev1.Service{Status: object.Clone(asked.GetStatus())}
					DefaultService(next)
					next.Spec = live.Spec
					return next
				},
			},
		},
		Table: define.Columns[*corev1.Service]{
			define.Text("Type", "How the service is reached.", func(s *corev1.Service) string { return s.GetSpec().GetType() }),
			define.Text("Cluster-IP", "Address in the cluster.",
				func(s *corev1.Service) string { return s.GetSpec().GetClusterIP() }),
			define.Age[*corev1.Service](),
		},
	}.Strategy()}
}

// DefaultService fills in a service; call it on create, on update and on a status update.
func DefaultService(s *corev1.Service) {
	defaults.Message(&s.Metadata)
	defaults.Message(&s.Spec)
	defaults.Message(&s.Status)
	defaults.Message(&s.Status.LoadBalancer)
	defaults.Set(&s.Spec.Type, "ClusterIP")
	defaults.Set(&s.Spec.SessionAffinity, "None")
}

// DefaultNewService is DefaultService with a fresh status.
func DefaultNewService(s *corev1.Service) {
	s.Status = nil
	DefaultService(s)
}
