package endpoints

import (
	"monoplane.dev/controllers/controller"
	"monoplane.dev/rules/rights"
)

// Declare describes the controller.
func Declare() controller.Declaration {
	return controller.Declaration{
		Name: "endpoint",
		Grants: []rights.Grant{
			{Verbs: "create update delete", Resources: "endpoints"},
			{Verbs: "get", Resources: "services"},
		},
		New: func(e controller.Env) (controller.Component, error) {
			return New(Config{Client: e.Client, Shared: e.Shared, Logger: e.Logger})
		},
	}
}
