package nodelifecycle

import (
	"monoplane.dev/controllers/controller"
	"monoplane.dev/rules/rights"
)

// Declare describes the controller.
func Declare() controller.Declaration {
	return controller.Declaration{
		Name: "node-lifecycle",
		Grants: []rights.Grant{
			{Verbs: "get", Resources: "pods"},
			{Verbs: rights.Modify, Resources: "pods/status nodes nodes/status"},
			{Verbs: "get", Resources: "nodes"},
			{Verbs: "list", Resources: "leases"},
		},
		New: func(e controller.Env) (controller.Component, error) {
			return New(Config{
				Client: e.Client, Shared: e.Shared, Settings: e.Settings.NodeLifecycle, Logger: e.Logger,
				Registerer: e.Registerer,
			})
		},
	}
}
