package statefulset

import (
	"monoplane.dev/controllers/controller"
	"monoplane.dev/rules/rights"
)

// Declare describes the controller.
func Declare() controller.Declaration {
	return controller.Declaration{
		Name: "statefulset",
		Grants: []rights.Grant{
			{Verbs: rights.Read, Resources: "statefulsets"},
			{Verbs: "update", Resources: "statefulsets/status"},
			{Verbs: "get create update patch delete", Resources: "controllerrevisions"},
			{Verbs: "create update patch delete", Resources: "pods"},
			{Verbs: "create patch", Resources: "persistentvolumeclaims"},
		},
		New: func(e controller.Env) (controller.Component, error) {
			return New(Config{Client: e.Client, Shared: e.Shared, Logger: e.Logger})
		},
	}
}
