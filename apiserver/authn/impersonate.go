package authn

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"strings"

	"monoplane.dev/apierrors"
	"monoplane.dev/object"
)

// impersonatePrefix begins the names of the headers by which a client asks to act as somebody else.
const impersonatePrefix = "impersonate-"

// extraPrefix follows it in the names of headers with what else is to be known of the user.
const extraPrefix = "extra-"

// Wish is whom a client asks to act as.
type Wish struct {
	// User is the name; it is never empty.
	User string
	// Groups, UID and Extra are what else is asked for; all may be empty.
	Groups []string
	UID    string
	Extra  map[string][]string
}

// Impersonator judges the wish of u, who may be anonymous, to act as somebody else, and returns who that is. Errors:
// Forbidden.
type Impersonator func(ctx context.Context, u *User, w *Wish) (*User, error)

// acting returns as whom u makes the request with these headers or metadata: u, or whom they ask for. To ignore the
// wish would do the request with the rights of u, which are mostly more (spec: OBJ-16). Errors: Forbidden, BadRequest.
func (a *Authenticator) acting(ctx context.Context, u *User, headers map[string][]string) (*User, error) {
	if !asksToAct(headers) {
		return u, nil
	}
	if a.impersonate == nil {
		return nil, forbidImpersonation(u, headers)
	}
	w, err := wish(headers)
	if err != nil {
		return nil, err
	}
	return a.impersonate(ctx, u, w)
}

// asksToAct says whether headers or metadata ask to act as somebody else.
func asksToAct(headers map[string][]string) bool {
	for name := range headers {
		if isImpersonation(name) {
			return true
		}
	}
	return false
}

// wish reads headers or metadata of which at least one is about impersonation.
func wish(headers map[string][]string) (*Wish, error) {
	w := &Wish{}
	for name, values := range headers {
		if !isImpersonation(name) {
			continue
		}
		switch what := strings.ToLower(name[len(impersonatePrefix):]); {
		case (what == "user" || what == "uid") && len(values) != 1:
			return nil, apierrors.New(apierrors.BadRequest, "header %s is there more than once", name)
		case what == "user":
			w.User = values[0]
		case what == "uid":
			w.UID = values[0]
		case what == "group":
			w.Groups = append(w.Groups, values...)
		case strings.HasPrefix(what, extraPrefix):
			key := what[len(extraPrefix):]
			if plain, err := url.PathUnescape(key); err == nil {
				key = plain
			}
			if w.Extra == nil {
				w.Extra = make(map[string][]string)
			}
			w.Extra[key] = append(w.Extra[key], values...)
		default:
			return nil, apierrors.New(apierrors.BadRequest, "header %s is not known", name)
		}
	}
	if w.User == "" {
		return nil, apierrors.New(apierrors.BadRequest,
			"impersonation of groups %q, uid %q and extra %q without a user", w.Groups, w.UID, w.Extra)
	}
	return w, nil
}

// withoutWish takes the wish out of headers or metadata, which are changed.
func withoutWish(headers map[string][]string) {
	for name := range headers {
		if isImpersonation(name) {
			delete(headers, name)
		}
	}
}

// Impersonates refuses a request of u, nil for an unknown client, whose headers or metadata ask to act as somebody
// else, where there is nobody to judge that: in-process, and where no authenticator has been passed. Errors:
// Forbidden.
func Impersonates(u *User, headers map[string][]string) error {
	if asksToAct(headers) {
		return forbidImpersonation(u, headers)
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
	switch extra, isExtra := strings.CutPrefix(what, extraPrefix); {
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
