package auth

import (
	"strings"

	"monoplane.dev/apiserver/authn"
	"monoplane.dev/rules/rights"
)

// The paths of what is no resource.
const (
	// MetricsPath is that of the metrics.
	MetricsPath = "/metrics"
	// ReflectionPath stands for the description of the gRPC services.
	ReflectionPath = "/grpc.reflection"
)

// row describes a class.
type row struct {
	// name or prefix is what the name of the user is or begins with; group is one that the user must be in. What is
	// empty is not asked for.
	name, prefix, group string
	// component says that this is a part of the control plane.
	component bool
	// everything may be done; grants say nothing then.
	everything bool
	// grants is what may be done, besides what every component may.
	grants []rights.Grant
}

// table says who is who and who may do what; users, those who monitor and programs of somebody else besides what roles
// give them. Nothing else is allowed. What is marked (own) is narrowed further by
// owned, by the kinds' strategies, and by what the node's pods refer to. Nobody writes to it.
var table = [...]row{
	Anonymous: {name: authn.AnonymousName},
	Node: {prefix: authn.NodePrefix, group: authn.NodesGroup, component: true, grants: []rights.Grant{
		{Verbs: rights.Read + " create delete", Resources: "pods"},    // (own)
		{Verbs: rights.Modify, Resources: "pods/status"},              // (own)
		{Verbs: rights.Read + " " + rights.Write, Resources: "nodes"}, // (own)
		{Verbs: rights.Modify, Resources: "nodes/status"},             // (own)
		{Verbs: rights.Read, Resources: "configmaps secrets"},         // (own)
		{Verbs: "get", Resources: "serviceaccounts"},                  // (own)
		{Verbs: "get", Resources: "persistentvolumes"},                // (own)
		{Verbs: "get", Resources: "persistentvolumeclaims"},           // (own)
		{Verbs: "get", Resources: "runtimeclasses"},                   // (own)
		{Verbs: "list", Resources: "services"},
		{Verbs: "create", Resources: "serviceaccounts/token"}, // (own)
		{Verbs: "listen answer", Resources: "nodestreams"},    // (own)
	}},
	Scheduler: {name: authn.SchedulerName, component: true, grants: []rights.Grant{
		{Verbs: rights.Read + " delete", Resources: "pods"},
		{Verbs: rights.Modify, Resources: "pods/status"},
		{Verbs: "create", Resources: "pods/binding"},
		{Verbs: rights.Read, Resources: "nodes namespaces storageclasses poddisruptionbudgets replicasets " +
			"replicationcontrollers statefulsets services"},
		{Verbs: rights.Read + " " + rights.Modify, Resources: "persistentvolumes persistentvolumeclaims"},
		{Verbs: "listen answer", Resources: "schedulerstreams"},
	}},
	// The grants are those of a controller that has not declared what it needs, such as a program of somebody else.
	Controller: {prefix: authn.ControllerPrefix, component: true, grants: []rights.Grant{
		{Verbs: rights.Read, Resources: rights.All + " nodes namespaces persistentvolumes storageclasses"},
		{Verbs: "delete", Resources: "pods"},
		{Verbs: rights.Modify, Resources: "pods/status nodes/status"},
	}},
	Admin: {group: authn.AdminsGroup, everything: true},
	Monitoring: {group: authn.MonitoringGroup, grants: []rights.Grant{
		{Verbs: "get", Resources: MetricsPath + " " + ReflectionPath},
		{Verbs: "get", Resources: "nodes/stats nodes/metrics"},
	}},
	User: {},
}

// everybody is what everybody may do who has shown credentials, whatever roles say.
var everybody = []rights.Grant{{
	Verbs: "create", Resources: "selfsubjectreviews selfsubjectaccessreviews selfsubjectrulesreviews",
}}

// components is what every component may do.
var components = []rights.Grant{
	{Verbs: rights.Write, Resources: "events"},
	{Verbs: "get " + rights.Write, Resources: "leases"},
	{Verbs: rights.Read, Resources: "priorityclasses"},
}

// right is one verb on one resource, or path.
type right struct{ verb, resource, subresource string }

// set is what somebody may do, in a form that is quick to ask.
type set map[right]bool

// setOf returns all rights that some grants give.
func setOf(grants ...rights.Grant) set {
	s := make(set)
	for _, g := range grants {
		for verb := range strings.FieldsSeq(g.Verbs) {
			for resource := range strings.FieldsSeq(g.Resources) {
				r := right{verb: verb, resource: resource}
				if resource[0] != '/' {
					r.resource, r.subresource, _ = strings.Cut(resource, "/")
				}
				s[r] = true
			}
		}
	}
	return s
}

// allow says whether the request is among the rights.
func (s set) allow(a *Attributes) bool {
	r := right{a.Verb, a.Resource, a.Subresource}
	if a.Path != "" {
		r.resource = a.Path
	}
	if s[r] {
		return true
	}
	if !a.Namespaced || a.Subresource != "" || a.Resource == rights.Secrets {
		return false
	}
	r.resource = rights.All
	return s[r]
}
