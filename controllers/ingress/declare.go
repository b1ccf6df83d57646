package ingress

import (
	"monoplane.dev/controllers/controller"
	"monoplane.dev/rules/rights"
)

// Declare describes the controller. It does nothing where the server has no listeners for Ingresses.
func Declare() controller.Declaration {
	return controller.Declaration{
		Name: "ingress",
		Grants: []rights.Grant{
			{Verbs: rights.Read, Resources: "ingresses"},
			{Verbs: "update", Resources: "ingresses/status"},
			{Verbs: rights.Read + " create", Resources: "ingressclasses"},
			{Verbs: "list watch " + rights.ShowTLS, Resources: rights.Secrets},
		},
		EveryServer: true,
		New: func(e controller.Env) (controller.Component, error) {
			return New(Config{
				Client: e.Client, Shared: e.Shared, Entry: e.Settings.Ingress, SeveralServers: e.Settings.Server.Shared,
				Logger: e.Logger,
			})
		},
	}
}
