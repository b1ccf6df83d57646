package auth

import (
	"slices"

	"k8s.io/apimachinery/pkg/fields"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/auth/roles"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/object"
	"monoplane.dev/rules/hostimage"
	"monoplane.dev/rules/rights"

	rbacv1 "monoplane.dev/api/rbac/v1"
)

// Attributes describe a request.
type Attributes struct {
	// Verb is get, list, watch, create, update, patch, delete or deletecollection.
	Verb string
	// Group, Resource and Subresource are those of the URL: "", "pods", "status".
	Group, Resource, Subresource string
	// Namespaced says whether objects of the resource live in namespaces.
	Namespaced bool
	// Namespace and Name are as the request gives them; either may be empty.
	Namespace, Name string
	// FieldSelector is that of a list or watch.
	FieldSelector string
	// Path is what a request for no resource is about, such as "/metrics"; the other fields but Verb are then empty.
	Path string
}

// Authorizer decides by verb and resource. It is safe for concurrent use.
type Authorizer struct {
	// roles is what users may do, and programs that call themselves controllers and are none of ours.
	roles *roles.Index

	// classes is what each class may do.
	classes [len(table)]set
	// controllers is what the controllers may do that have declared it, by their user names.
	controllers map[string]set
}

// NewAuthorizer returns the authorizer with the built-in table, the rights that controllers have declared, and the
// roles of an index, nil for none.
func NewAuthorizer(controllers []rights.Role, index *roles.Index) *Authorizer {
	if index == nil {
		index = roles.New()
	}
	z := &Authorizer{roles: index, controllers: make(map[string]set, len(controllers))}
	for class := range table {
		grants := slices.Concat(table[class].grants, everybody)
		if table[class].component {
			grants = slices.Concat(grants, components)
		}
		z.classes[class] = setOf(grants...)
	}
	for _, c := range controllers {
		grants := slices.Concat(c.Grants, everybody)
		if !c.OnlyGrants {
			grants = slices.Concat(grants, components)
		}
		z.controllers[authn.ControllerPrefix+c.Name] = setOf(grants...)
	}
	return z
}

// rightsOf returns what is granted to id.
func (z *Authorizer) rightsOf(id Identity) set {
	if id.Class == Controller {
		if s, ok := z.controllers[id.Name]; ok {
			return s
		}
	}
	return z.classes[id.Class]
}

// Authorize returns nil when id may make the request. Errors: Unauthorized, Forbidden.
func (z *Authorizer) Authorize(id Identity, a Attributes) error {
	if id.Class == Anonymous {
		if id.User != nil && id.User.Impersonator != nil {
			return Denied(id, a, "") // who asks has credentials: others would not help
		}
		return apierrors.New(apierrors.Unauthorized, "Unauthorized")
	}
	if table[id.Class].everything {
		return nil
	}
	switch builtIn := z.rightsOf(id).allow(&a); {
	case builtIn && id.Class == Node:
		return owned(id, a)
	case builtIn:
		return nil
	case !z.hasRoles(id):
		return Denied(id, a, "")
	}
	r := request(id, &a)
	if z.roles.Allows(&r) {
		return nil
	}
	return Denied(id, a, z.roles.Reason(&r))
}

// Decide says whether a user, who need not have a name, may do something, and which role allows it, if one does, or is
// bound and does not exist.
func (z *Authorizer) Decide(u *authn.User, a Attributes) (allowed bool, reason string) {
	id := Of(u)
	if u.Name == "" {
		id = Identity{Class: User, User: u}
	}
	if id.Class == Anonymous {
		return false, ""
	}
	allowed = z.Authorize(id, a) == nil
	return allowed, z.Why(id, a, allowed)
}

// Why says which role allows what was decided, if one does, or is bound and does not exist. It is empty for decisions
// without roles.
func (z *Authorizer) Why(id Identity, a Attributes, allowed bool) string {
	if id.Class == Anonymous || table[id.Class].everything || !z.hasRoles(id) || allowed && z.rightsOf(id).allow(&a) {
		return ""
	}
	r := request(id, &a)
	return z.roles.Reason(&r)
}

// RulesOf returns the rules of the roles that id has in a namespace, "" for those that it has everywhere, and those
// that are bound and do not exist. The rules are shared: do not change them.
func (z *Authorizer) RulesOf(id Identity, namespace string) (rules []*rbacv1.PolicyRule, missing []string) {
	if id.User == nil || !z.hasRoles(id) {
		return nil, nil
	}
	return z.roles.RulesOf(&roles.Request{User: id.Name, Groups: id.User.Groups, Namespace: namespace})
}

// RulesIn returns the rules of the role that a binding in a namespace refers to; ok is false when there is none. They
// are shared: do not change them.
func (z *Authorizer) RulesIn(ref *rbacv1.RoleRef, namespace string) (rules []*rbacv1.PolicyRule, ok bool) {
	return z.roles.RulesIn(ref, namespace)
}

// hasRoles says whether roles add to what id may do.
func (z *Authorizer) hasRoles(id Identity) bool {
	switch id.Class {
	case Node, Scheduler:
		return false
	case Controller:
		_, ours := z.controllers[id.Name]
		return !ours
	default:
		return true
	}
}

// request puts a request into the words of package roles. In Kubernetes a list of one name is about that object.
func request(id Identity, a *Attributes) roles.Request {
	r := roles.Request{
		User: id.Name, Groups: id.User.Groups, Verb: a.Verb, Group: a.Group, Resource: a.Resource,
		Subresource: a.Subresource, Namespace: a.Namespace, Name: a.Name, Path: a.Path,
	}
	if r.Name == "" && a.FieldSelector != "" && (a.Verb == "list" || a.Verb == "watch" || a.Verb == "deletecollection") {
		if s, err := fields.ParseSelector(a.FieldSelector); err == nil {
			r.Name, _ = s.RequiresExactMatch("metadata.name")
		}
	}
	return r
}

// Collects says whether id has the right to remove pods that no agent will finish (rights.Collect). An administrator
// has not: what a user may do with pods is a rule of its own.
func (z *Authorizer) Collects(id Identity) bool {
	return z.rightsOf(id)[right{verb: rights.Collect, resource: "pods"}]
}

// Shows says whether id has the right to see what some secrets hold, as a part of the control plane: verb is
// rights.ShowTLS or rights.ShowTokens.
func (z *Authorizer) Shows(id Identity, verb string) bool {
	return z.rightsOf(id)[right{verb: verb, resource: rights.Secrets}]
}

// MayUseHost refuses who has no right to image "host" in a namespace. The parts of the control plane make pods of what
// others have written, who have been asked.
func (z *Authorizer) MayUseHost(id Identity, namespace string) error {
	if !z.hasRoles(id) {
		return nil
	}
	return z.Authorize(id, Attributes{
		Verb: hostimage.Use, Group: hostimage.Group, Resource: hostimage.Resource, Namespaced: true,
		Namespace: namespace, Name: hostimage.Name,
	})
}

// owned narrows what an agent reads to its own node: its Node, and the pods bound to it. What it writes is
// judged by the strategies, which see the objects.
func owned(id Identity, a Attributes) error {
	if a.Verb != "list" && a.Verb != "watch" {
		return nil
	}
	var field string
	switch a.Resource {
	case "pods":
		field = "spec.nodeName"
	case "nodes":
		field = "metadata.name"
	default:
		return nil
	}
	if s, err := fields.ParseSelector(a.FieldSelector); err == nil {
		if v, ok := s.RequiresExactMatch(field); ok && v == id.Node {
			return nil
		}
	}
	return Denied(id, a, "an agent must select "+field+"="+id.Node)
}

// Denied says that id may not make the request, in Kubernetes' words; why may be empty.
func Denied(id Identity, a Attributes, why string) error {
	if why != "" {
		why = ": " + why
	}
	if a.Path != "" {
		return apierrors.New(apierrors.Forbidden, "forbidden: User %q cannot %s path %q%s", id.Name, a.Verb, a.Path, why)
	}
	resource := a.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	scope := "at the cluster scope"
	if a.Namespace != "" {
		scope = `in the namespace "` + a.Namespace + `"`
	}
	return apierrors.NewForbidden(&object.Kind{Group: a.Group, Plural: a.Resource}, a.Name,
		"User %q cannot %s resource %q in API group %q %s%s", id.Name, a.Verb, resource, a.Group, scope, why)
}

// OwnNode refuses an agent that acts on something of another node. It passes everybody who is not an agent.
func OwnNode(id Identity, node, what string) error {
	if id.Class != Node || (node != "" && node == id.Node) {
		return nil
	}
	return apierrors.New(apierrors.Forbidden, "%s is forbidden: %s may only act on what belongs to its own node",
		what, authn.NodePrefix+id.Node)
}
