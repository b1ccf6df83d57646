package core

import (
	"monoplane.dev/apiserver/kinds/core/service"
	"monoplane.dev/apiserver/kinds/define"
)

// Service describes the kind with package service.
func Service(c define.Config) define.Definition {
	return define.Definition{Strategy: service.New(c.Deps, c.Services).Strategy()}
}
