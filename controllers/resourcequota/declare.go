package resourcequota

import (
	"monoplane.dev/api/services"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/object/service"
	"monoplane.dev/rules/quota"
	"monoplane.dev/rules/rights"
)

// Declare describes the controller. It reads objects of every kind that quotas can count; of Secrets it is shown that
// they are there.
func Declare() controller.Declaration {
	d := controller.Declaration{
		Name:   "resourcequota-controller",
		Grants: []rights.Grant{{Verbs: "update", Resources: "resourcequotas/status"}},
		New: func(e controller.Env) (controller.Component, error) {
			return New(Config{Client: e.Client, Logger: e.Logger})
		},
	}
	for _, s := range services.All() {
		if counted(s) {
			d.Grants = append(d.Grants, rights.Grant{Verbs: "list watch", Resources: s.Kind.Plural})
		}
	}
	return d
}

// counted says whether quotas can count the objects of a service's kind.
func counted(s *service.Service) bool { return s.Stores() && s.Events != nil && quota.Counted(s.Kind) }
