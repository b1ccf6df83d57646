package tainteviction

import (
	"monoplane.dev/controllers/controller"
	"monoplane.dev/rules/rights"
)

// Declare describes the controller.
func Declare() controller.Declaration {
	return controller.Declaration{
		Name: "taint-eviction",
		Grants: []rights.Grant{
			{Verbs: "get delete", Resources: "pods"},
			{Verbs: rights.Modify, Resources: "pods/status"},
			{Verbs: "get", Resources: "nodes"},
		},
		New: func(e controller.Env) (controller.Component, error) {
			return New(Config{Client: e.Client, Shared: e.Shared, Logger: e.Logger, Registerer: e.Registerer})
		},
	}
}
