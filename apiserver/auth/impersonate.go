package auth

import (
	"maps"
	"slices"
	"strings"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/authn"
)

const (
	// accountPrefix begins the names of service accounts, before the namespace, a colon and the name.
	accountPrefix = "system:serviceaccount:"
	// accountsGroup holds all service accounts; with a colon and a namespace, those of the namespace.
	accountsGroup = "system:serviceaccounts"

	authenticationGroup = "authentication.k8s.io"
)

// Impersonate returns whom w asks for, when u has the verb "impersonate" on each part of it. Nobody acts as a part of
// the control plane: what an agent says of its pods, for one, is true because nobody else can say it (spec: DEL-8,
// OBJ-16). Errors: Forbidden.
func (z *Authorizer) Impersonate(u *authn.User, w *authn.Wish) (*authn.User, error) {
	id := Of(u)
	as := &authn.User{
		Name: w.User, UID: w.UID, Groups: slices.Clone(w.Groups), Extra: w.Extra, Impersonator: u,
	}
	var asks []Attributes
	if namespace, name, ok := account(w.User); ok {
		asks = append(asks, Attributes{Resource: "serviceaccounts", Namespaced: true, Namespace: namespace, Name: name})
		if len(as.Groups) == 0 {
			as.Groups = []string{accountsGroup, accountsGroup + ":" + namespace}
		}
	} else {
		asks = append(asks, Attributes{Resource: "users", Name: w.User})
	}
	for _, g := range w.Groups {
		asks = append(asks, Attributes{Resource: "groups", Name: g})
	}
	for _, key := range slices.Sorted(maps.Keys(w.Extra)) {
		for _, value := range w.Extra[key] {
			asks = append(asks, Attributes{Group: authenticationGroup, Resource: "userextras", Subresource: key, Name: value})
		}
	}
	if w.UID != "" {
		asks = append(asks, Attributes{Group: authenticationGroup, Resource: "uids", Name: w.UID})
	}
	for _, a := range asks {
		a.Verb = "impersonate"
		if id.Class == Anonymous {
			return nil, Denied(id, a, "")
		}
		if err := z.Authorize(id, a); err != nil {
			return nil, err
		}
	}
	if w.User == authn.AnonymousName {
		as.Groups = with(as.Groups, authn.UnauthenticatedGroup)
	} else if !slices.Contains(as.Groups, authn.UnauthenticatedGroup) {
		as.Groups = with(as.Groups, authn.AuthenticatedGroup)
	}
	if Of(as).Component() {
		return nil, apierrors.New(apierrors.Forbidden,
			"User %q cannot act as %q: nobody can act as a part of the control plane", id.Name, w.User)
	}
	return as, nil
}

// account splits the user name of a service account.
func account(user string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(user, accountPrefix)
	if !ok {
		return "", "", false
	}
	namespace, name, _ = strings.Cut(rest, ":")
	return namespace, name, namespace != "" && name != "" && !strings.Contains(name, ":")
}

// with returns groups with one more, unless it is there.
func with(groups []string, group string) []string {
	if slices.Contains(groups, group) {
		return groups
	}
	return append(groups, group)
}
