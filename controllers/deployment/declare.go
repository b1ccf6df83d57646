package deployment

import (
	"monoplane.dev/controllers/controller"
	"monoplane.dev/rules/rights"
)

// Declare describes the controller.
func Declare() controller.Declaration {
	return controller.Declaration{
		Name: "deployment",
		Grants: []rights.Grant{
			{Verbs: rights.Read + " patch", Resources: "deployments"},
			{Verbs: "update", Resources: "deployments/status"},
			{Verbs: "get create update patch delete", Resources: "replicasets"},
		},
		New: func(e controller.Env) (controller.Component, error) {
			return New(Config{Client: e.Client, Shared: e.Shared, Logger: e.Logger})
		},
	}
}
