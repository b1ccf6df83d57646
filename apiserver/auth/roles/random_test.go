package roles

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
	rbacv1 "monoplane.dev/api/rbac/v1"
)

// some returns one to four of some words.
func some(r *rand.Rand, words ...string) []string {
	out := make([]string, 1+r.IntN(4))
	for i := range out {
		out[i] = words[r.IntN(len(words))]
	}
	return out
}

// manyNames are so many that a rule with two verbs, groups or resources is not looked up in a map.
var manyNames = sync.OnceValue(func() []string {
	out := make([]string, maxExpanded)
	for i := range out {
		out[i] = fmt.Sprint("n", i)
	}
	return out
})

func randomRule(r *rand.Rand) *rbacv1.PolicyRule {
	out := &rbacv1.PolicyRule{Verbs: some(r, "get", "list", "delete", all)}
	if r.IntN(4) == 0 {
		out.NonResourceURLs = some(r, "/a", "/a/*", "/a*", "/b/c", all, "/**")
		return out
	}
	out.ApiGroups, out.Resources = some(r, "", "apps", all), some(r, "pods", "pods/log", "deployments", "*/log", all)
	switch r.IntN(6) {
	case 0, 1:
		out.ResourceNames = some(r, "x", "y", "")
	case 2:
		out.ResourceNames = manyNames()
	}
	return out
}

func randomRequest(r *rand.Rand) *Request {
	q := &Request{
		User: some(r, "u", "v")[0], Groups: some(r, "g", "h"), Verb: some(r, "get", "list", "delete", "patch")[0],
	}
	if r.IntN(4) == 0 {
		q.Path = some(r, "/a", "/a/b", "/ab", "/b/c", "/d", "/")[0]
		return q
	}
	q.Group, q.Resource = some(r, "", "apps", "batch")[0], some(r, "pods", "deployments", "jobs")[0]
	q.Subresource, q.Namespace = some(r, "", "log", "exec")[0], some(r, "", "a", "b")[0]
	q.Name = some(r, "", "x", "y", "z", "n7")[0]
	return q
}

// Whatever comes and goes in whatever order, the index decides as the rules of what is there say, is what one would be
// that is told of that alone, and keeps nothing in the end.
//
// spec: OBJ-15
func TestIndexAfterRandomChanges(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	x, there, allowed := New(), map[key]object.Object{}, 0
	kinds := []func(m *metav1.ObjectMeta) object.Object{
		func(m *metav1.ObjectMeta) object.Object {
			m.Namespace = ""
			return &rbacv1.ClusterRole{Metadata: m, Rules: []*rbacv1.PolicyRule{randomRule(r), randomRule(r)}}
		},
		func(m *metav1.ObjectMeta) object.Object {
			return &rbacv1.Role{Metadata: m, Rules: []*rbacv1.PolicyRule{randomRule(r)}}
		},
		func(m *metav1.ObjectMeta) object.Object {
			m.Namespace = ""
			return &rbacv1.ClusterRoleBinding{Metadata: m, Subjects: randomSubjects(r), RoleRef: randomRef(r, "ClusterRole")}
		},
		func(m *metav1.ObjectMeta) object.Object {
			return &rbacv1.RoleBinding{Metadata: m, Subjects: randomSubjects(r), RoleRef: randomRef(r, "ClusterRole", "Role")}
		},
	}
	for range 3000 {
		kind := r.IntN(len(kinds))
		is := kinds[kind](&metav1.ObjectMeta{Namespace: some(r, "a", "b")[0], Name: fmt.Sprint("r", r.IntN(12))})
		m := is.GetMetadata()
		at := key{fmt.Sprint(kind, " ", m.GetNamespace()), m.GetName()}
		if was := there[at]; r.IntN(3) == 0 {
			delete(there, at)
			if was != nil {
				x.Changed(was, nil)
			}
		} else {
			there[at] = is
			x.Changed(was, is)
		}
		q := randomRequest(r)
		want := slices.ContainsFunc(x.grants(q), func(g grant) bool { return slices.ContainsFunc(g.role.rules, q.in) })
		if got := x.Allows(q); got != want {
			t.Fatalf("%+v: %t, the rules say %t", q, got, want)
		}
		if want {
			allowed++
		}
	}
	if allowed < 300 || allowed > 2700 {
		t.Errorf("%d requests of 3000 were allowed", allowed)
	}
	again := New()
	for _, o := range there {
		again.Changed(nil, o)
	}
	for who, in := range x.scopes {
		for namespace, s := range in {
			other := again.scopes[who][namespace]
			if other == nil || (s.together == nil) != (other.together == nil) ||
				s.together != nil && !same(s.together, other.together) {
				t.Errorf("%v has in %q other rights than what is there gives", who, namespace)
			}
		}
	}
	for _, o := range there {
		x.Changed(o, nil)
	}
	if len(x.roles)+len(x.bindings)+len(x.scopes) > 0 {
		t.Errorf("%d roles, %d bindings and %d subjects are left", len(x.roles), len(x.bindings), len(x.scopes))
	}
}

// same says whether two sets are the same but for the order of what is walked.
func same(a, b *set) bool {
	x, y := *a, *b
	x.large, y.large = nil, nil
	return reflect.DeepEqual(x, y) && len(a.large) == len(b.large) &&
		!slices.ContainsFunc(a.large, func(r *rbacv1.PolicyRule) bool { return !slices.Contains(b.large, r) })
}

func randomSubjects(r *rand.Rand) (out []*rbacv1.Subject) {
	for range 1 + r.IntN(3) {
		if r.IntN(2) == 0 {
			out = append(out, &rbacv1.Subject{Kind: "User", Name: some(r, "u", "v")[0]})
		} else {
			out = append(out, &rbacv1.Subject{Kind: "Group", Name: some(r, "g", "h")[0]})
		}
	}
	return out
}

func randomRef(r *rand.Rand, kinds ...string) *rbacv1.RoleRef {
	return &rbacv1.RoleRef{Kind: kinds[r.IntN(len(kinds))], Name: fmt.Sprint("r", r.IntN(12))}
}
