package rootca

import (
	"monoplane.dev/controllers/controller"
	"monoplane.dev/rules/rights"
)

// Declare describes the controller.
func Declare() controller.Declaration {
	return controller.Declaration{
		Name: "rootca",
		Grants: []rights.Grant{
			{Verbs: rights.Read, Resources: "namespaces"},
			{Verbs: rights.Read + " create update delete", Resources: "configmaps"},
		},
		New: func(e controller.Env) (controller.Component, error) {
			return New(Config{Client: e.Client, RootCA: e.RootCA, Logger: e.Logger})
		},
	}
}
