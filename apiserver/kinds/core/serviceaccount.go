package core

import (
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
)

// ServiceAccount describes the kind, of which only the metadata has rules.
func ServiceAccount(c define.Config) define.Definition {
	return define.Definition{
		Strategy: registry.Typed[*corev1.ServiceAccount]{
			Kind:           corev1.ServiceAccountKind,
			ReturnsDeleted: true,
			Table: define.Columns[*corev1.ServiceAccount]{
				define.Age[*corev1.ServiceAccount](),
			},
		}.Strategy(),
		Server: func(b object.Backend, _ func(*object.Kind) object.Backend) any {
			return &serviceAccounts{
				ServiceAccountsBackend: corev1rpc.ServiceAccountsBackend{Backend: b},
				tokens:                 c.Tokens, store: c.Deps.Store, clock: c.Deps.Clock,
			}
		},
	}
}
