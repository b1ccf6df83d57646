package serviceaccount

import (
	"monoplane.dev/controllers/controller"
	"monoplane.dev/rules/rights"
)

// Declare describes the controller.
func Declare() controller.Declaration {
	return controller.Declaration{
		Name: "serviceaccount",
		Grants: []rights.Grant{
			{Verbs: rights.Read, Resources: "namespaces"},
			{Verbs: rights.Read + " create", Resources: "serviceaccounts"},
		},
		New: func(e controller.Env) (controller.Component, error) {
			return New(Config{Client: e.Client, Logger: e.Logger})
		},
	}
}
