package cronjob

import (
	"monoplane.dev/controllers/controller"
	"monoplane.dev/rules/rights"
)

// Declare describes the controller.
func Declare() controller.Declaration {
	return controller.Declaration{
		Name: "cronjob",
		Grants: []rights.Grant{
			{Verbs: rights.Read, Resources: "cronjobs"},
			{Verbs: "update", Resources: "cronjobs/status"},
			{Verbs: "get create delete", Resources: "jobs"},
		},
		New: func(e controller.Env) (controller.Component, error) {
			return New(Config{Client: e.Client, Shared: e.Shared, Logger: e.Logger})
		},
	}
}
