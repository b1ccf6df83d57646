package nodeipam

import (
	"monoplane.dev/controllers/controller"
	"monoplane.dev/rules/rights"
)

// Declare describes the controller.
func Declare() controller.Declaration {
	return controller.Declaration{
		Name:   "node-ipam",
		Grants: []rights.Grant{{Verbs: "get update", Resources: "nodes"}},
		New: func(e controller.Env) (controller.Component, error) {
			return New(Config{Client: e.Client, Shared: e.Shared, Logger: e.Logger, Ranges: e.Settings.PodRanges})
		},
	}
}
