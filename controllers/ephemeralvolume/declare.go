package ephemeralvolume

import (
	"monoplane.dev/controllers/controller"
	"monoplane.dev/rules/rights"
)

// Declare describes the controller.
func Declare() controller.Declaration {
	return controller.Declaration{
		Name: "ephemeral-volume",
		Grants: []rights.Grant{
			{Verbs: "get", Resources: "pods"},
			{Verbs: "create delete", Resources: "persistentvolumeclaims"},
		},
		New: func(e controller.Env) (controller.Component, error) {
			return New(Config{Client: e.Client, Shared: e.Shared, Logger: e.Logger})
		},
	}
}
