package core

import (
	"monoplane.dev/apiserver/kinds/core/pod"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/object"
)

// Pod describes the kind with package pod.
func Pod(c define.Config) define.Definition {
	pods := pod.New(c.Deps, c.Audit, c.Rights)
	return define.Definition{
		Strategy: pods.Strategy(),
		Server: func(b object.Backend, _ func(*object.Kind) object.Backend) any {
			return pods.Service(b, c.Logs, c.Streams)
		},
	}
}
