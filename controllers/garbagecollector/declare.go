package garbagecollector

import (
	"monoplane.dev/api/services"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/rules/rights"
)

// Declare describes the controller. It reads, changes and removes objects of every kind, Secrets too.
func Declare() controller.Declaration {
	d := controller.Declaration{
		Name: "garbage-collector",
		New: func(e controller.Env) (controller.Component, error) {
			return New(Config{Client: e.Client, Logger: e.Logger, Registerer: e.Registerer})
		},
	}
	for _, s := range services.All() {
		if collected(s) {
			d.Grants = append(d.Grants, rights.Grant{Verbs: rights.Read + " patch delete", Resources: s.Kind.Plural})
		}
	}
	return d
}
