package replicaset

import (
	"monoplane.dev/controllers/controller"
	"monoplane.dev/rules/rights"
)

// Declare describes the controller of ReplicaSets.
func Declare() controller.Declaration {
	return controller.Declaration{
		Name: "replicaset",
		Grants: []rights.Grant{
			{Verbs: "create delete patch", Resources: "pods"},
			{Verbs: "get", Resources: "replicasets"},
			{Verbs: "update", Resources: "replicasets/status"},
		},
		New: func(e controller.Env) (controller.Component, error) {
			return New(Config{Client: e.Client, Shared: e.Shared, Logger: e.Logger})
		},
	}
}

// DeclareForReplicationControllers describes the controller of ReplicationControllers.
func DeclareForReplicationControllers() controller.Declaration {
	return controller.Declaration{
		Name: "replicationcontroller",
		Grants: []rights.Grant{
			{Verbs: "create delete patch", Resources: "pods"},
			{Verbs: rights.Read, Resources: "replicationcontrollers"},
			{Verbs: "update", Resources: "replicationcontrollers/status"},
		},
		New: func(e controller.Env) (controller.Component, error) {
			return NewForReplicationControllers(Config{Client: e.Client, Shared: e.Shared, Logger: e.Logger})
		},
	}
}
