package core

import (
	"monoplane.dev/apiserver/kinds/core/service"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
)

// Service describes the kind with package service.
func Service(c define.Config) define.Definition {
	return define.Definition{
		Strategy: service.New(c.Deps, c.Services, c.PodNetwork).Strategy(),
		Server: func(b object.Backend, backendOf func(*object.Kind) object.Backend) any {
			return &serviceService{
				ServicesBackend: corev1rpc.ServicesBackend{Backend: b}, agents: c.Streams,
				endpoints: backendOf(corev1.EndpointsKind), pods: backendOf(corev1.PodKind),
			}
		},
	}
}
