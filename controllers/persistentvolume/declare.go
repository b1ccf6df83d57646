package persistentvolume

import (
	"monoplane.dev/controllers/controller"
	"monoplane.dev/rules/rights"
)

// Declare describes the controller.
func Declare() controller.Declaration {
	return controller.Declaration{
		Name: "persistentvolume",
		Grants: []rights.Grant{
			{Verbs: rights.Read + " " + rights.Write + " delete", Resources: "persistentvolumes"},
			{Verbs: rights.Read + " " + rights.Modify, Resources: "persistentvolumeclaims"},
			{Verbs: rights.Modify, Resources: "persistentvolumes/status persistentvolumeclaims/status"},
			{Verbs: rights.Read, Resources: "storageclasses pods nodes"},
		},
		New: func(e controller.Env) (controller.Component, error) {
			return New(Config{Client: e.Client, Shared: e.Shared, Logger: e.Logger, Registerer: e.Registerer})
		},
	}
}
