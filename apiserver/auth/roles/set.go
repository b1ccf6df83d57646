package roles

import (
	"slices"
	"strings"

	rbacv1 "monoplane.dev/api/rbac/v1"
)

// all stands for every verb, group or resource, and ends a path that stands for all that begin so.
const all = "*"

// maxExpanded is the most rights of one rule, of which each verb on each resource of each group and each name is one,
// that are looked up in a map. A larger one, which can be written in a few kilobytes, is walked.
const maxExpanded = 4096

// right is one verb on one resource. resource and subresource are what is before and after the first slash. It is
// about the object of a name when it is named, and about all objects when it is not.
type right struct {
	verb, group, resource, subresource string
	named                              bool
	name                               string
}

// pathRight is one verb on one path, or on all that begin with a prefix.
type pathRight struct {
	verb   string
	prefix bool
	path   string
}

// set is what the rules of some roles give together, in a form that is quick to ask. Rules come and go at the price of
// what they give themselves, however many others there are.
type set struct {
	// rights and paths are how many times each is given.
	//
	// Invariant: no number is 0.
	rights map[right]int
	paths  map[pathRight]int
	// verbs, groups and resources are how many rules have "*" there, parts how many "*/something", and names how many
	// are about objects of some names.
	verbs, groups, resources, parts, names int
	// prefixes are how many rights begin with a path of some length.
	prefixes map[int]int
	// large are the rules whose rights are too many.
	large []*rbacv1.PolicyRule
}

// newSet returns what some rules give.
func newSet(rules []*rbacv1.PolicyRule) *set {
	s := &set{rights: make(map[right]int), paths: make(map[pathRight]int), prefixes: make(map[int]int)}
	s.add(rules)
	return s
}

func (s *set) add(rules []*rbacv1.PolicyRule) {
	for _, r := range rules {
		if rightsIn(r) > maxExpanded {
			s.large = append(s.large, r)
		} else {
			s.count(r, 1)
		}
	}
}

// remove takes rules away that have been added.
func (s *set) remove(rules []*rbacv1.PolicyRule) {
	for _, r := range rules {
		if rightsIn(r) > maxExpanded {
			if i := slices.Index(s.large, r); i >= 0 {
				s.large = slices.Delete(s.large, i, i+1)
			}
		} else {
			s.count(r, -1)
		}
	}
}

// count adds n to how many times each right of a rule is given.
func (s *set) count(r *rbacv1.PolicyRule, n int) {
	if slices.Contains(r.GetVerbs(), all) {
		s.verbs += n
	}
	if slices.Contains(r.GetApiGroups(), all) {
		s.groups += n
	}
	if len(r.GetResourceNames()) > 0 {
		s.names += n
	}
	for _, written := range r.GetResources() {
		resource, sub := split(written, "")
		switch {
		case resource != all:
		case sub == "":
			s.resources += n
		default:
			s.parts += n
		}
		for _, verb := range r.GetVerbs() {
			for _, group := range r.GetApiGroups() {
				given := right{verb: verb, group: group, resource: resource, subresource: sub}
				if len(r.GetResourceNames()) == 0 {
					tally(s.rights, given, n)
				}
				for _, name := range r.GetResourceNames() {
					given.named, given.name = true, name
					tally(s.rights, given, n)
				}
			}
		}
	}
	for _, path := range r.GetNonResourceURLs() {
		start := strings.HasSuffix(path, all)
		path = strings.TrimRight(path, all)
		for _, verb := range r.GetVerbs() {
			if start {
				tally(s.prefixes, len(path), n)
			}
			tally(s.paths, pathRight{verb, start, path}, n)
		}
	}
}

// tally adds n to a number, which goes when it is 0.
func tally[K comparable](in map[K]int, key K, n int) {
	if in[key] += n; in[key] == 0 {
		delete(in, key)
	}
}

// allows says whether the request is among what is given.
func (s *set) allows(r *Request) bool {
	if r.Path != "" {
		return s.allowsPath(r) || slices.ContainsFunc(s.large, r.pathIn)
	}
	resource, sub := split(r.Resource, r.Subresource)
	if s.allowsOn(r, resource, sub) || s.resources > 0 && s.allowsOn(r, all, "") ||
		s.parts > 0 && r.Subresource != "" && s.allowsOn(r, all, r.Subresource) {
		return true
	}
	return slices.ContainsFunc(s.large, r.in)
}

func (s *set) allowsPath(r *Request) bool {
	has := func(prefix bool, path string) bool {
		return s.paths[pathRight{r.Verb, prefix, path}] > 0 || s.verbs > 0 && s.paths[pathRight{all, prefix, path}] > 0
	}
	if has(false, r.Path) {
		return true
	}
	for n := range s.prefixes {
		if n <= len(r.Path) && has(true, r.Path[:n]) {
			return true
		}
	}
	return false
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
		s.verbs > 0 && s.has(r, all, r.Group, resource, sub) ||
		s.groups > 0 && s.has(r, r.Verb, all, resource, sub) ||
		s.verbs > 0 && s.groups > 0 && s.has(r, all, all, resource, sub)
}

func (s *set) has(r *Request, verb, group, resource, sub string) bool {
	wanted := right{verb: verb, group: group, resource: resource, subresource: sub}
	if s.rights[wanted] > 0 {
		return true
	}
	if s.names == 0 {
		return false
	}
	wanted.named, wanted.name = true, r.Name
	return s.rights[wanted] > 0
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
