package apiendpoints

import (
	"monoplane.dev/controllers/controller"
	"monoplane.dev/rules/rights"
)

// Declare describes the controller.
func Declare() controller.Declaration {
	return controller.Declaration{
		Name: "apiendpoints",
		Grants: []rights.Grant{
			{Verbs: rights.Read + " create update", Resources: "services"},
			{Verbs: rights.Read + " create update", Resources: "endpoints"},
			{Verbs: rights.Read + " create update delete", Resources: "endpointslices"},
			{Verbs: rights.Read + " create update delete", Resources: "leases"},
		},
		EveryServer: true,
		New: func(e controller.Env) (controller.Component, error) {
			return New(Config{Client: e.Client, Server: e.Settings.Server, Logger: e.Logger})
		},
	}
}
