package disruption

import (
	"monoplane.dev/controllers/controller"
	"monoplane.dev/rules/rights"
)

// Declare describes the controller.
func Declare() controller.Declaration {
	return controller.Declaration{
		Name: "disruption",
		Grants: []rights.Grant{
			{Verbs: rights.Read, Resources: "poddisruptionbudgets"},
			{Verbs: rights.Modify, Resources: "poddisruptionbudgets/status pods/status"},
			{Verbs: "get", Resources: "pods deployments/scale replicasets/scale replicationcontrollers/scale"},
			{Verbs: "get", Resources: "statefulsets/scale"},
		},
		New: func(e controller.Env) (controller.Component, error) {
			return New(Config{Client: e.Client, Shared: e.Shared, Logger: e.Logger})
		},
	}
}
