// Package controllers lists the controllers. Each has a package of its own, in which it declares itself; to add one,
// write that package and its line in All.
package controllers

import (
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/deployment"
	"monoplane.dev/controllers/disruption"
	"monoplane.dev/controllers/ephemeralvolume"
	"monoplane.dev/controllers/garbagecollector"
	"monoplane.dev/controllers/namespace"
	"monoplane.dev/controllers/nodelifecycle"
	"monoplane.dev/controllers/persistentvolume"
	"monoplane.dev/controllers/podgc"
	"monoplane.dev/controllers/replicaset"
	"monoplane.dev/controllers/rootca"
	"monoplane.dev/controllers/serviceaccount"
	"monoplane.dev/controllers/tainteviction"
	"monoplane.dev/rules/rights"
)

// All returns all controllers, in the order in which they are started.
func All() []controller.Declaration {
	return []controller.Declaration{
		podgc.Declare(),
		namespace.Declare(),
		serviceaccount.Declare(),
		persistentvolume.Declare(),
		rootca.Declare(),
		ephemeralvolume.Declare(),
		deployment.Declare(),
		replicaset.Declare(),
		replicaset.DeclareForReplicationControllers(),
		nodelifecycle.Declare(),
		tainteviction.Declare(),
		disruption.Declare(),
		garbagecollector.Declare(),
	}
}

// Roles returns what each of them may do, and who feeds their shared caches, for the server.
func Roles() []rights.Role {
	roles := []rights.Role{controller.SharedRole()}
	for _, c := range All() {
		roles = append(roles, rights.Role{Name: c.Name, Grants: c.Grants})
	}
	return roles
}
