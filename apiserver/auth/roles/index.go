// Package roles judges requests by Roles, ClusterRoles and their bindings, as Kubernetes' RBAC authorizer does: what
// is asked for is allowed when one rule of one role that is bound to the user, or to one of the user's groups, gives
// it.
//
// An Index is told of every change of those objects, keeps them by those whom they are bound to, and decides from
// memory. A decision looks at what is bound to the user and the user's groups, everywhere and in the namespace of the
// request, and at nothing else: how many other roles and bindings there are does not matter, nor how many the user
// has. It allocates nothing: what a role gives is worked out when the index is told of it, not by who asks first. A
// right ends with the call that tells of the change.
//
// The package knows nothing of administrators and of the parts of the control plane: package auth does. It reads no
// store.
package roles

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
	rbacv1 "monoplane.dev/api/rbac/v1"
)

// accountPrefix begins the user names of service accounts, before the namespace, a colon and the name.
const accountPrefix = "system:serviceaccount:"

// Request is what somebody wants to do.
type Request struct {
	// User and Groups are who asks.
	User   string
	Groups []string
	// Verb is what is to be done, with the Resource and Subresource of an API Group.
	Verb, Group, Resource, Subresource string
	// Namespace is empty for all, and for what is in none. Name may be empty.
	Namespace, Name string
	// Path is what a request for no resource is about; the fields from Group to Name are empty then.
	Path string
}

// key names a role or a binding; those of the cluster have no namespace.
type key struct{ namespace, name string }

func keyOf(m *metav1.ObjectMeta) key { return key{m.GetNamespace(), m.GetName()} }

// role is a role that exists, or that a binding names.
type role struct {
	key    key
	exists bool
	rules  []*rbacv1.PolicyRule
	// set is what the rules give.
	//
	// Invariant: it is there as long as the role is bound, and nil otherwise.
	set *set
	// scopes are those in which it is bound, with the number of times.
	scopes map[*scope]int
}

// subject is a user or the members of a group. Service accounts are users.
type subject struct {
	group bool
	name  string
}

// grant is a role that a binding gives to one of its subjects.
type grant struct {
	binding key
	role    *role
	subject *rbacv1.Subject
}

// scope is what is bound to one subject in one namespace, or everywhere.
type scope struct {
	grants []grant
	// roles are those of the grants, each once.
	roles []*role
	// together is what they give.
	//
	// Invariant: it is there if and only if there are manyRoles or more.
	together *set
}

// manyRoles is from how many roles of one scope on they are put together, which takes memory, rather than asked one by
// one, which takes time.
const manyRoles = 5

// allows says whether one of the grants gives what is asked for.
func (s *scope) allows(r *Request) bool {
	if s.together != nil {
		return s.together.allows(r)
	}
	return slices.ContainsFunc(s.roles, func(role *role) bool { return role.set.allows(r) })
}

// give adds a role, which has its set.
func (s *scope) give(r *role) {
	s.roles = append(s.roles, r)
	switch {
	case s.together != nil:
		s.together.add(r.rules)
	case len(s.roles) == manyRoles:
		s.together = newSet(nil)
		for _, r := range s.roles {
			s.together.add(r.rules)
		}
	}
}

// take removes a role.
func (s *scope) take(r *role) {
	i := slices.Index(s.roles, r)
	s.roles = slices.Delete(s.roles, i, i+1)
	switch {
	case len(s.roles) < manyRoles:
		s.together = nil
	default:
		s.together.remove(r.rules)
	}
}

// Index knows all roles and bindings. Make one with New, and tell it of each change. It is safe for concurrent use.
type Index struct {
	mu sync.RWMutex
	// roles are those that exist or are bound. Those of the cluster have no namespace.
	roles    map[key]*role
	bindings map[key]binding
	// scopes are by subject and namespace, which is "" for everywhere.
	//
	// Invariant: no scope is without grants, and no subject without scopes.
	scopes map[subject]map[string]*scope
}

// binding is a RoleBinding or a ClusterRoleBinding.
type binding interface {
	object.Object
	GetSubjects() []*rbacv1.Subject
	GetRoleRef() *rbacv1.RoleRef
}

// New returns an index that knows of nothing.
func New() *Index {
	return &Index{
		roles: make(map[key]*role), bindings: make(map[key]binding), scopes: make(map[subject]map[string]*scope),
	}
}

// Changed tells that an object was, and what it is now: nil before it was created, and after it was deleted. Objects
// of other kinds mean nothing.
func (x *Index) Changed(was, is object.Object) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch o := present(was, is).(type) {
	case *rbacv1.Role:
		now, _ := is.(*rbacv1.Role)
		x.setRole(keyOf(o.GetMetadata()), is != nil, now.GetRules())
	case *rbacv1.ClusterRole:
		now, _ := is.(*rbacv1.ClusterRole)
		x.setRole(keyOf(o.GetMetadata()), is != nil, now.GetRules())
	case binding:
		now, _ := is.(binding)
		x.setBinding(keyOf(o.GetMetadata()), now)
	}
}

func present(was, is object.Object) object.Object {
	if is != nil {
		return is
	}
	return was
}

func (x *Index) setRole(k key, exists bool, rules []*rbacv1.PolicyRule) {
	r := x.role(k)
	was := r.rules
	r.exists, r.rules = exists, rules
	if len(r.scopes) > 0 {
		r.set = newSet(rules)
	}
	for s := range r.scopes {
		if s.together != nil {
			s.together.remove(was)
			s.together.add(rules)
		}
	}
	x.forget(r)
}

// role returns the role of a name, which is made when it is not known.
func (x *Index) role(k key) *role {
	r := x.roles[k]
	if r == nil {
		r = &role{key: k, scopes: make(map[*scope]int)}
		x.roles[k] = r
	}
	return r
}

// forget drops a role that neither exists nor is bound.
func (x *Index) forget(r *role) {
	if !r.exists && len(r.scopes) == 0 {
		delete(x.roles, r.key)
	}
}

func (x *Index) setBinding(k key, now binding) {
	if was := x.bindings[k]; was != nil {
		for _, s := range was.GetSubjects() {
			x.unbind(k, subjectOf(s, k.namespace))
		}
		delete(x.bindings, k)
	}
	if now == nil {
		return
	}
	x.bindings[k] = now
	r := x.role(referred(now.GetRoleRef(), k.namespace))
	for _, s := range now.GetSubjects() {
		if who := subjectOf(s, k.namespace); who.name != "" {
			x.bind(who, grant{binding: k, role: r, subject: s})
		}
	}
	x.forget(r)
}

// referred returns the name of the role that a binding refers to.
func referred(ref *rbacv1.RoleRef, namespace string) key {
	if ref.GetKind() == "ClusterRole" {
		namespace = ""
	}
	return key{namespace, ref.GetName()}
}

// subjectOf returns who is meant; no name is nobody.
func subjectOf(s *rbacv1.Subject, namespace string) subject {
	switch s.GetKind() {
	case "User":
		return subject{name: s.GetName()}
	case "Group":
		return subject{group: true, name: s.GetName()}
	case "ServiceAccount":
		if namespace = cmp.Or(s.GetNamespace(), namespace); namespace != "" {
			return subject{name: accountPrefix + namespace + ":" + s.GetName()}
		}
	}
	return subject{}
}

func (x *Index) bind(who subject, g grant) {
	in := x.scopes[who]
	if in == nil {
		in = make(map[string]*scope)
		x.scopes[who] = in
	}
	s := in[g.binding.namespace]
	if s == nil {
		s = &scope{}
		in[g.binding.namespace] = s
	}
	s.grants = append(s.grants, g)
	if g.role.set == nil {
		g.role.set = newSet(g.role.rules)
	}
	if g.role.scopes[s]++; g.role.scopes[s] == 1 {
		s.give(g.role)
	}
}

// unbind takes from a subject what a binding gave it.
func (x *Index) unbind(k key, who subject) {
	s := x.scopes[who][k.namespace]
	if s == nil {
		return // nobody, or somebody whom the binding named twice
	}
	s.grants = slices.DeleteFunc(s.grants, func(g grant) bool {
		if g.binding != k {
			return false
		}
		if g.role.scopes[s]--; g.role.scopes[s] == 0 {
			s.take(g.role)
			if delete(g.role.scopes, s); len(g.role.scopes) == 0 {
				g.role.set = nil
			}
			x.forget(g.role)
		}
		return true
	})
	if len(s.grants) > 0 {
		return
	}
	if delete(x.scopes[who], k.namespace); len(x.scopes[who]) == 0 {
		delete(x.scopes, who)
	}
}

// Allows says whether a role gives what is asked for.
func (x *Index) Allows(r *Request) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.asks(subject{name: r.User}, r) {
		return true
	}
	for _, g := range r.Groups {
		if x.asks(subject{group: true, name: g}, r) {
			return true
		}
	}
	return false
}

func (x *Index) asks(who subject, r *Request) bool {
	in := x.scopes[who]
	if in == nil {
		return false
	}
	if s := in[""]; s != nil && s.allows(r) {
		return true
	}
	if r.Namespace == "" {
		return false
	}
	s := in[r.Namespace]
	return s != nil && s.allows(r)
}

// Reason says which binding allows what Allows does; of several the first, by its namespace and name. It takes its
// time. When nothing allows the request, it names the roles that are bound and do not exist, "" for none.
func (x *Index) Reason(r *Request) string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var missing []string
	for _, g := range x.grants(r) {
		switch {
		case !g.role.exists:
			missing = append(missing, g.role.missing())
		case slices.ContainsFunc(g.role.rules, r.in):
			return "RBAC: allowed by " + x.describe(g)
		}
	}
	missing = slices.Compact(missing)
	switch len(missing) {
	case 0:
		return ""
	case 1:
		return "RBAC: " + missing[0]
	default:
		return "RBAC: [" + strings.Join(missing, ", ") + "]"
	}
}

// missing says that the role does not exist.
func (r *role) missing() string {
	resource := rbacv1.RoleKind
	if r.key.namespace == "" {
		resource = rbacv1.ClusterRoleKind
	}
	return fmt.Sprintf("%s.%s %q not found", resource.Singular, resource.Group, r.key.name)
}

// describe names the binding, the role and the subject of a grant.
func (x *Index) describe(g grant) string {
	kind, name, who := "ClusterRoleBinding", g.binding.name, g.subject.GetName()
	if g.binding.namespace != "" {
		kind, name = "RoleBinding", name+"/"+g.binding.namespace
	}
	if g.subject.GetKind() == "ServiceAccount" {
		who += "/" + cmp.Or(g.subject.GetNamespace(), g.binding.namespace)
	}
	ref := x.bindings[g.binding].GetRoleRef()
	return fmt.Sprintf("%s %q of %s %q to %s %q", kind, name, ref.GetKind(), ref.GetName(), g.subject.GetKind(), who)
}

// grants returns what is bound to who asks, each binding once and in the order of their namespaces and names.
func (x *Index) grants(r *Request) []grant {
	var out []grant
	add := func(who subject) {
		for _, namespace := range slices.Compact([]string{"", r.Namespace}) {
			if s := x.scopes[who][namespace]; s != nil {
				out = append(out, s.grants...)
			}
		}
	}
	add(subject{name: r.User})
	for _, g := range r.Groups {
		add(subject{group: true, name: g})
	}
	slices.SortStableFunc(out, func(a, b grant) int {
		return cmp.Or(cmp.Compare(a.binding.namespace, b.binding.namespace), cmp.Compare(a.binding.name, b.binding.name))
	})
	return slices.CompactFunc(out, func(a, b grant) bool { return a.binding == b.binding })
}

// RulesOf returns the rules of all roles that the user and groups of r have in its namespace, those that are bound
// everywhere first, and what Reason says of roles that do not exist. They are shared: do not change them.
func (x *Index) RulesOf(r *Request) (rules []*rbacv1.PolicyRule, missing []string) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	known := make(map[*role]bool)
	for _, g := range x.grants(r) {
		switch {
		case known[g.role]:
		case g.role.exists:
			rules = append(rules, g.role.rules...)
		default:
			missing = append(missing, g.role.missing())
		}
		known[g.role] = true
	}
	return rules, missing
}

// RulesIn returns the rules of the role that a binding in a namespace, "" for one of the cluster, refers to; ok is
// false when there is none. They are shared: do not change them.
func (x *Index) RulesIn(ref *rbacv1.RoleRef, namespace string) (rules []*rbacv1.PolicyRule, ok bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if r := x.roles[referred(ref, namespace)]; r != nil && r.exists {
		return r.rules, true
	}
	return nil, false
}
