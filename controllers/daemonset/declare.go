package daemonset

import (
	"monoplane.dev/controllers/controller"
	"monoplane.dev/rules/rights"
)

// Declare describes the controller.
func Declare() controller.Declaration {
	return controller.Declaration{
		Name: "daemonset",
		Grants: []rights.Grant{
			{Verbs: "create delete patch", Resources: "pods"},
			{Verbs: rights.Read, Resources: "daemonsets"},
			{Verbs: "update", Resources: "daemonsets/status"},
			{Verbs: "get create update patch delete", Resources: "controllerrevisions"},
		},
		New: func(e controller.Env) (controller.Component, error) {
			return New(Config{Client: e.Client, Shared: e.Shared, Logger: e.Logger})
		},
	}
}
