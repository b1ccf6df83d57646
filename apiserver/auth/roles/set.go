package roles

import (
	"maps"
	"slices"
	"strings"

	rbacv1 "monoplane.dev/api/rbac/v1"
)

// all stands for every verb, group or resource, and ends a path that stands for all that begin so.
const all = "*"

// maxExpanded is the most rights of one rule, of which each verb on each resource of each group is one, that are
// looked up in a map. The rules of a larger one, which can be written in a few kilobytes, are walked.
const maxExpanded = 4096

// right is one verb on one resource. resource and subresource are what is before and after the first slash.
type right struct{ verb, group, resource, subresource string }

// set is what some rules give, in a form that is quick to ask. It does not change.
type set struct {
	// rights are what is given on resources, by the names of the objects; no names are all objects.
	rights map[right]map[string]struct{}
	// verbs, groups and resources say whether any right has "*" there, and parts whether one is of "*/something".
	verbs, groups, resources, parts bool
	// large are the rules whose rights are too many.
	large []*rbacv1.PolicyRule
	// paths are the rules on paths.
	paths []*rbacv1.PolicyRule
	// joined are the rights whose names are those of several rules, in a map of their own. It is needed while the set
	// is made.
	joined map[right]bool
}

// compile returns what all rules together give.
func compile(lists ...[]*rbacv1.PolicyRule) *set {
	s := &set{rights: make(map[right]map[string]struct{}), joined: make(map[right]bool)}
	for _, rules := range lists {
		for _, r := range rules {
			s.add(r)
		}
	}
	s.joined = nil
	return s
}

func (s *set) add(r *rbacv1.PolicyRule) {
	if len(r.GetNonResourceURLs()) > 0 {
		s.paths = append(s.paths, r)
	}
	if len(r.GetVerbs())*len(r.GetApiGroups())*len(r.GetResources()) > maxExpanded {
		s.large = append(s.large, r)
		return
	}
	names := namesOf(r)
	for _, verb := range r.GetVerbs() {
		s.verbs = s.verbs || verb == all
		for _, group := range r.GetApiGroups() {
			s.groups = s.groups || group == all
			for _, written := range r.GetResources() {
				resource, sub := split(written, "")
				if resource == all {
					s.resources, s.parts = s.resources || sub == "", s.parts || sub != ""
				}
				s.give(right{verb, group, resource, sub}, names)
			}
		}
	}
}

// namesOf returns the names that a rule is limited to, nil for all.
func namesOf(r *rbacv1.PolicyRule) map[string]struct{} {
	if len(r.GetResourceNames()) == 0 {
		return nil
	}
	names := make(map[string]struct{}, len(r.GetResourceNames()))
	for _, n := range r.GetResourceNames() {
		names[n] = struct{}{}
	}
	return names
}

// give adds a right to the objects of some names. The names of one rule are shared by its rights, and never added to.
func (s *set) give(r right, names map[string]struct{}) {
	have, known := s.rights[r]
	switch {
	case !known:
		s.rights[r] = names
	case have == nil:
	case names == nil:
		s.rights[r] = nil
	default:
		if !s.joined[r] {
			s.joined[r] = true
			have = maps.Clone(have)
			s.rights[r] = have
		}
		maps.Copy(have, names)
	}
}

// allows says whether the request is among what is given.
func (s *set) allows(r *Request) bool {
	if r.Path != "" {
		return slices.ContainsFunc(s.paths, r.pathIn)
	}
	resource, sub := split(r.Resource, r.Subresource)
	if s.allowsOn(r, resource, sub) || s.resources && s.allowsOn(r, all, "") ||
		s.parts && r.Subresource != "" && s.allowsOn(r, all, r.Subresource) {
		return true
	}
	return slices.ContainsFunc(s.large, r.in)
}

// split cuts a resource, of which the subresource may be part, at its first slash.
func split(resource, subresource string) (first, rest string) {
	first, rest, _ = strings.Cut(resource, "/")
	switch {
	case rest == "":
		return resource, subresource
	case subresource == "":
		return first, rest
	default:
		return first, rest + "/" + subresource
	}
}

func (s *set) allowsOn(r *Request, resource, sub string) bool {
	return s.has(r, r.Verb, r.Group, resource, sub) ||
		s.verbs && s.has(r, all, r.Group, resource, sub) ||
		s.groups && s.has(r, r.Verb, all, resource, sub) ||
		s.verbs && s.groups && s.has(r, all, all, resource, sub)
}

func (s *set) has(r *Request, verb, group, resource, sub string) bool {
	names, ok := s.rights[right{verb, group, resource, sub}]
	if !ok || names == nil {
		return ok
	}
	_, ok = names[r.Name]
	return ok
}

// in says whether a rule gives what is asked for.
func (r *Request) in(rule *rbacv1.PolicyRule) bool {
	if r.Path != "" {
		return r.pathIn(rule)
	}
	return has(rule.GetVerbs(), r.Verb) && has(rule.GetApiGroups(), r.Group) &&
		slices.ContainsFunc(rule.GetResources(), r.resourceIn) &&
		(len(rule.GetResourceNames()) == 0 || slices.Contains(rule.GetResourceNames(), r.Name))
}

// resourceIn says whether a resource as rules write it is the one that is asked for.
func (r *Request) resourceIn(written string) bool {
	if written == all {
		return true
	}
	if r.Subresource == "" {
		return written == r.Resource
	}
	resource, sub, ok := cutSuffix(written, r.Subresource)
	return ok && sub && (resource == r.Resource || resource == all)
}

// cutSuffix cuts "/sub" from a resource.
func cutSuffix(written, sub string) (resource string, slash, ok bool) {
	rest, ok := strings.CutSuffix(written, sub)
	if !ok {
		return "", false, false
	}
	resource, slash = strings.CutSuffix(rest, "/")
	return resource, slash, true
}

func (r *Request) pathIn(rule *rbacv1.PolicyRule) bool {
	return has(rule.GetVerbs(), r.Verb) && slices.ContainsFunc(rule.GetNonResourceURLs(), func(given string) bool {
		return given == all || covered(given, r.Path)
	})
}

// has says whether a list has an element, or what stands for all.
func has(list []string, s string) bool {
	return slices.ContainsFunc(list, func(x string) bool { return x == s || x == all })
}

// covered says whether a path is the one that is given, or begins like one that ends in "*".
func covered(given, path string) bool {
	return given == path || strings.HasSuffix(given, all) && strings.HasPrefix(path, strings.TrimRight(given, all))
}
