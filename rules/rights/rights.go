// Package rights is the language in which it is said what a part of the control plane may do. A controller says it
// beside its code (package controllers), the server for everybody else (package apiserver/auth), and the server's
// authorizer makes one table of both.
//
// The package holds words only: it decides nothing.
package rights

// Grant gives every one of Verbs on every one of Resources; each is a list that is separated by spaces. A resource
// is written as in URLs, with its subresource: "pods/status". All stands for many resources. What is no resource is
// written as its path: "/metrics".
type Grant struct {
	Verbs, Resources string
}

// Verbs that mostly go together.
const (
	Read   = "get list watch"
	Write  = "create update patch"
	Modify = "update patch"
)

// All stands for every resource of a namespace, without subresources and without Secrets. Secrets are read by nobody
// to whom they are not granted by name, so that a part which looks at everything does not see them.
const All = "*"

// Secrets is the resource that All does not stand for.
const Secrets = "secrets"

// Collect is a verb that no request has. Who has it on pods may, in requests that other grants let pass, end and
// remove pods that no agent will finish: their node is gone, they were never bound, or they have ended already. The
// rules of pods judge each of them (spec: DEL-8, GC-1 to GC-4).
const Collect = "collect"

// ShowTLS is a verb that no request has. Who has it on secrets sees, in what other grants let it read, what those of
// type kubernetes.io/tls hold: the other parts of the control plane see of secrets only that they are there.
const ShowTLS = "showtls"

// ShowTokens is the same for secrets of type kubernetes.io/service-account-token.
const ShowTokens = "showtokens"

// Role is what a controller may do, besides what every part of the control plane may.
type Role struct {
	// Name is the controller's: its user name is system:controller:NAME.
	Name   string
	Grants []Grant
	// OnlyGrants says that what every part of the control plane may is not given besides.
	OnlyGrants bool
}
