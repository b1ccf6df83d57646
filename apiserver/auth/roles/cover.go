package roles

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "monoplane.dev/api/rbac/v1"
)

// maxJudged is the most rights of one list of rules that are judged one by one by Missing.
const maxJudged = 100_000

// Missing returns those of the rights that wanted gives which held does not, each as a rule of its own but that those
// on one resource are together. A right is held when one rule gives it whole: two that share it out do not count.
// ok is false when there are too many rights to be judged one by one, and no rule of held gives each rule whole.
func Missing(held, wanted []*rbacv1.PolicyRule) (missing []*rbacv1.PolicyRule, ok bool) {
	judged := 0
	for _, rule := range wanted {
		// A rule with paths is judged path by path: names of objects, which it may have beside them, mean nothing there.
		if len(rule.GetNonResourceURLs()) == 0 &&
			slices.ContainsFunc(held, func(h *rbacv1.PolicyRule) bool { return givesWhole(h, rule) }) {
			continue
		}
		if judged += rightsIn(rule); judged > maxJudged {
			return nil, false
		}
		for _, single := range singles(rule) {
			if !slices.ContainsFunc(held, func(h *rbacv1.PolicyRule) bool { return givesWhole(h, single) }) {
				missing = append(missing, single)
			}
		}
	}
	return compact(missing), true
}

// rightsIn counts the rights of a rule.
func rightsIn(r *rbacv1.PolicyRule) int {
	names := max(1, len(r.GetResourceNames()))
	return len(r.GetVerbs()) * (len(r.GetApiGroups())*len(r.GetResources())*names + len(r.GetNonResourceURLs()))
}

// singles returns the rights of a rule as rules of one verb, one group, one resource and at most one name, or of one
// verb and one path.
func singles(r *rbacv1.PolicyRule) []*rbacv1.PolicyRule {
	var out []*rbacv1.PolicyRule
	for _, group := range r.GetApiGroups() {
		for _, resource := range r.GetResources() {
			for _, verb := range r.GetVerbs() {
				one := func(names []string) {
					out = append(out, &rbacv1.PolicyRule{Verbs: []string{verb}, ApiGroups: []string{group},
						Resources: []string{resource}, ResourceNames: names})
				}
				for _, name := range r.GetResourceNames() {
					one([]string{name})
				}
				if len(r.GetResourceNames()) == 0 {
					one(nil)
				}
			}
		}
	}
	for _, path := range r.GetNonResourceURLs() {
		for _, verb := range r.GetVerbs() {
			out = append(out, &rbacv1.PolicyRule{Verbs: []string{verb}, NonResourceURLs: []string{path}})
		}
	}
	return out
}

// givesWhole says whether one rule gives all that another does.
func givesWhole(held, wanted *rbacv1.PolicyRule) bool {
	within := func(wanted, held []string, gives func(held, wanted string) bool) bool {
		return !slices.ContainsFunc(wanted, func(w string) bool {
			return !slices.ContainsFunc(held, func(h string) bool { return gives(h, w) })
		})
	}
	same := func(h, w string) bool { return h == w }
	orAll := func(h, w string) bool { return h == w || h == all }
	return within(wanted.GetVerbs(), held.GetVerbs(), orAll) &&
		within(wanted.GetApiGroups(), held.GetApiGroups(), orAll) &&
		within(wanted.GetResources(), held.GetResources(), givesResource) &&
		within(wanted.GetNonResourceURLs(), held.GetNonResourceURLs(), covered) &&
		(len(held.GetResourceNames()) == 0 ||
			len(wanted.GetResourceNames()) > 0 && within(wanted.GetResourceNames(), held.GetResourceNames(), same))
}

func givesResource(held, wanted string) bool {
	if held == wanted || held == all {
		return true
	}
	_, sub, ok := strings.Cut(wanted, "/")
	return ok && held == "*/"+sub
}

// compact puts the verbs on one resource together.
func compact(rules []*rbacv1.PolicyRule) []*rbacv1.PolicyRule {
	type resource struct {
		group, resource, name string
		named                 bool
	}
	var out []*rbacv1.PolicyRule
	known := make(map[resource]*rbacv1.PolicyRule)
	for _, r := range rules {
		if len(r.GetResources()) == 0 {
			out = append(out, r)
			continue
		}
		key := resource{group: r.ApiGroups[0], resource: r.Resources[0], named: len(r.ResourceNames) > 0}
		if key.named {
			key.name = r.ResourceNames[0]
		}
		if have := known[key]; have != nil {
			have.Verbs = append(have.Verbs, r.Verbs...)
			continue
		}
		known[key] = r
		out = append(out, r)
	}
	return out
}

// Describe writes rules as the error of somebody who tries to give what he has not, a line for each.
func Describe(rules []*rbacv1.PolicyRule) string {
	lines := make(map[string]struct{}, len(rules))
	for _, r := range rules {
		var parts []string
		for _, part := range []struct {
			name string
			list []string
		}{
			{"APIGroups", r.GetApiGroups()}, {"Resources", r.GetResources()}, {"NonResourceURLs", r.GetNonResourceURLs()},
			{"ResourceNames", r.GetResourceNames()}, {"Verbs", r.GetVerbs()},
		} {
			if len(part.list) > 0 {
				parts = append(parts, fmt.Sprintf("%s:%q", part.name, part.list))
			}
		}
		lines["{"+strings.Join(parts, ", ")+"}"] = struct{}{}
	}
	return strings.Join(slices.Sorted(maps.Keys(lines)), "\n")
}
