package authn

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	"monoplane.dev/apierrors"
	"monoplane.dev/object"
)

// impersonatePrefix begins the names of the headers by which a client asks to act as somebody else.
const impersonatePrefix = "impersonate-"

// Impersonates refuses a request of u, nil for an unknown client, whose headers or metadata ask to act as somebody
// else: nobody may, as long as there are no roles that could allow it. To ignore the wish would do the request with
// the rights of u, which are mostly more (spec: OBJ-16). Errors: Forbidden.
func Impersonates(u *User, headers map[string][]string) error {
	for name := range headers {
		if isImpersonation(name) {
			return forbidImpersonation(u, headers)
		}
	}
	return nil
}

// isImpersonation compares without regard to case.
func isImpersonation(name string) bool {
	return len(name) >= len(impersonatePrefix) && strings.EqualFold(name[:len(impersonatePrefix)], impersonatePrefix)
}

// forbidImpersonation names the first thing that is asked for, in the order in which Kubernetes looks at them.
func forbidImpersonation(u *User, headers map[string][]string) error {
	asked := make(map[string]string)
	for name, values := range headers {
		if isImpersonation(name) {
			asked[strings.ToLower(name[len(impersonatePrefix):])] = strings.Join(values, ", ")
		}
	}
	names := slices.Sorted(maps.Keys(asked))
	for _, first := range []string{"uid", "group", "user"} {
		if i := slices.Index(names, first); i >= 0 {
			names = slices.Insert(slices.Delete(names, i, i+1), 0, first)
		}
	}
	what := names[0]
	kind := &object.Kind{Plural: what}
	switch extra, isExtra := strings.CutPrefix(what, "extra-"); {
	case what == "user":
		kind.Plural = "users"
	case what == "group":
		kind.Plural = "groups"
	case what == "uid":
		kind = &object.Kind{Group: "authentication.k8s.io", Plural: "uids"}
	case isExtra:
		if key, err := url.PathUnescape(extra); err == nil {
			extra = key
		}
		kind = &object.Kind{Group: "authentication.k8s.io", Plural: "userextras/" + extra}
	}
	name := AnonymousName
	if u != nil {
		name = u.Name
	}
	return apierrors.NewForbidden(kind, asked[what],
		"User %q cannot impersonate resource %q in API group %q at the cluster scope: impersonation is not supported",
		name, kind.Plural, kind.Group)
}
