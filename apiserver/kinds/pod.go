package kinds

import (
	"monoplane.dev/apiserver/kinds/pod"
	"monoplane.dev/object"
)

// pod describes the kind with package pod.
func (c Config) pod() definition {
	pods := pod.New(c.Deps, c.Audit, c.Rights)
	return definition{strategy: pods.Strategy(), server: func(b object.Backend, _ func(*object.Kind) object.Backend) any {
		return pods.Service(b, c.Logs)
	}}
}
