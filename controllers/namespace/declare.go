package namespace

import (
	"monoplane.dev/controllers/controller"
	"monoplane.dev/rules/rights"
)

// Declare describes the controller. It removes everything that is in a namespace, Secrets too; those it lists without
// ever asking for a single one.
func Declare() controller.Declaration {
	return controller.Declaration{
		Name: "namespace",
		Grants: []rights.Grant{
			{Verbs: rights.Read + " delete deletecollection", Resources: rights.All},
			{Verbs: "list delete deletecollection", Resources: rights.Secrets},
			{Verbs: rights.Read + " create", Resources: "namespaces"}, // create: those that every cluster has
			{Verbs: rights.Modify, Resources: "namespaces/status"},
			{Verbs: "update", Resources: "namespaces/finalize"},
		},
		New: func(e controller.Env) (controller.Component, error) {
			return New(Config{Client: e.Client, Logger: e.Logger})
		},
	}
}
