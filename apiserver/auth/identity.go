// Package auth decides who may do what: an authorizer that knows the components of the control plane by their
// identities and gives each no more than it needs, and the audit of forced deletions (spec: DEL-8, design
// decision 7).
//
// There are two steps. Authorize judges a request by verb and resource before it reaches a service. What
// depends on the object itself (a node's agent and the pods of its own node, who may force a deletion) is
// judged by the kinds' strategies on the revision that is written, with the Identity from here; the rules of
// pod deletion are in package deletion. Nothing in-process skips either.
//
// The package does not authenticate (see package authn) and keeps no state.
package auth

import (
	"context"
	"slices"
	"strings"

	"monoplane.dev/apiserver/authn"
)

// Class is what kind of client somebody is.
type Class int

// The classes. A component of the control plane is never a User, whatever groups it is in.
const (
	// Anonymous has shown no credentials.
	Anonymous Class = iota
	// User is a person or a program outside the control plane.
	User
	// Admin is a User who may do everything.
	Admin
	// Monitoring is a User who may read metrics.
	Monitoring
	// Node is the agent of a node.
	Node
	// Scheduler binds pods.
	Scheduler
	// PodGC is the pod garbage collector.
	PodGC
	// NamespaceController empties namespaces that are deleted.
	NamespaceController
	// ServiceAccountController gives every namespace its default account.
	ServiceAccountController
	// PersistentVolumeController binds claims to volumes and makes and removes volumes.
	PersistentVolumeController
	// Controller is any other controller.
	Controller
)

// The names of the controllers that have a class of their own.
const (
	podGCName            = authn.ControllerPrefix + "podgc"
	namespaceName        = authn.ControllerPrefix + "namespace"
	serviceAccountName   = authn.ControllerPrefix + "serviceaccount"
	persistentVolumeName = authn.ControllerPrefix + "persistentvolume"
)

// Identity is who makes a request, as the rules see it.
type Identity struct {
	Class Class
	// Name is the user name.
	Name string
	// Node is the node whose agent this is; only with class Node.
	Node string
	// Key identifies the machine of a node's agent, empty when unknown (NODE-7).
	Key string
}

// From returns the identity of the request that ctx belongs to.
func From(ctx context.Context) Identity { return Of(authn.UserFrom(ctx)) }

// Of classifies a user; nil is anonymous.
func Of(u *authn.User) Identity {
	if u == nil || u.Name == "" || u.Name == authn.AnonymousName {
		return Identity{Name: authn.AnonymousName}
	}
	id := Identity{Name: u.Name, Class: User}
	switch {
	case strings.HasPrefix(u.Name, authn.NodePrefix):
		// The group too, so that a certificate for another purpose cannot pass for an agent's.
		if id.Node = strings.TrimPrefix(u.Name, authn.NodePrefix); id.Node != "" && slices.Contains(u.Groups, authn.NodesGroup) {
			id.Class, id.Key = Node, u.UID
		}
	case u.Name == authn.SchedulerName:
		id.Class = Scheduler
	case u.Name == podGCName:
		id.Class = PodGC
	case u.Name == namespaceName:
		id.Class = NamespaceController
	case u.Name == serviceAccountName:
		id.Class = ServiceAccountController
	case u.Name == persistentVolumeName:
		id.Class = PersistentVolumeController
	case strings.HasPrefix(u.Name, authn.ControllerPrefix):
		id.Class = Controller
	case slices.Contains(u.Groups, authn.AdminsGroup):
		id.Class = Admin
	case slices.Contains(u.Groups, authn.MonitoringGroup):
		id.Class = Monitoring
	}
	return id
}

// Component says whether this is a part of the control plane. Components name the uid of what they write
// about (DEL-11).
func (id Identity) Component() bool {
	switch id.Class {
	case Node, Scheduler, PodGC, NamespaceController, ServiceAccountController, PersistentVolumeController, Controller:
		return true
	default:
		return false
	}
}
