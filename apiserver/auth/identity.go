// Package auth decides who may do what: an authorizer that knows the components of the control plane by their
// identities and gives each no more than it needs, and everybody else what roles give (package roles), and the audit
// of what an administrator must find (spec: DEL-8, FENCE-4, design decision 7).
//
// No role adds to what the agents of nodes, the scheduler and the built-in controllers may do: whoever may write roles
// could otherwise take from what these rules promise.
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

// The classes, in the order in which a user is compared with them: the first that fits counts. A component of the
// control plane therefore is never a User, whatever groups it is in. The table in roles.go says how each is known and
// what it may do.
const (
	// Anonymous has shown no credentials.
	Anonymous Class = iota
	// Node is the agent of a node.
	Node
	// Scheduler binds pods.
	Scheduler
	// Controller is a controller: one of ours, which has the rights that it declares, or another program.
	Controller
	// Admin is a User who may do everything.
	Admin
	// Monitoring is a User who may read metrics.
	Monitoring
	// User is a person or a program outside the control plane.
	User
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
	// User is who it is, with the groups; nil for nobody.
	User *authn.User
}

// From returns the identity of the request that ctx belongs to.
func From(ctx context.Context) Identity { return Of(authn.UserFrom(ctx)) }

// Of classifies a user; nil is anonymous.
func Of(u *authn.User) Identity {
	if u == nil || u.Name == "" {
		return Identity{Name: authn.AnonymousName}
	}
	id := Identity{Name: u.Name, Class: classOf(u), User: u}
	if id.Class == Node {
		id.Node, id.Key = u.Name[len(authn.NodePrefix):], u.UID
	}
	return id
}

// classOf looks u up in the table.
func classOf(u *authn.User) Class {
	for class := range table {
		row := &table[class]
		named := row.name != "" || row.prefix != ""
		if named && u.Name != row.name && (row.prefix == "" || !strings.HasPrefix(u.Name, row.prefix)) {
			continue
		}
		switch {
		case u.Name != row.prefix && (row.group == "" || slices.Contains(u.Groups, row.group)):
			return Class(class)
		case named:
			// Without the group, a certificate for another purpose must not pass for that of the component, nor for an
			// administrator's.
			return User
		}
	}
	return User
}

// Component says whether this is a part of the control plane. Components name the uid of what they write
// about (DEL-11).
func (id Identity) Component() bool { return table[id.Class].component }
