package job

import (
	"monoplane.dev/controllers/controller"
	"monoplane.dev/rules/rights"
)

// Declare describes the controller.
func Declare() controller.Declaration {
	return controller.Declaration{
		Name: "job",
		Grants: []rights.Grant{
			{Verbs: "get list create delete patch", Resources: "pods"},
			{Verbs: "get", Resources: "jobs"},
			{Verbs: "update", Resources: "jobs/status"},
		},
		New: func(e controller.Env) (controller.Component, error) {
			return New(Config{Client: e.Client, Shared: e.Shared, Logger: e.Logger, Registerer: e.Registerer})
		},
	}
}
