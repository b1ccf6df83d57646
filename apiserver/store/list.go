package store

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/store/etcd"
	"monoplane.dev/apiserver/store/watchcache"
	"monoplane.dev/object"
)

// token is what a list's continue token holds.
type token struct {
	// Resource guards against the token of another kind.
	Resource string `json:"resource"`
	// Revision is the one that all pages show; latest in a token for the rest as it is when it is asked for.
	Revision int64 `json:"revision"`
	// After is the key of the last object of the page before.
	After string `json:"after"`
}

// latest is no revision: whichever is the newest.
const latest = -1

// String returns the token as clients get it.
func (t token) String() string {
	b, _ := json.Marshal(t) // strings and a number: cannot fail
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseToken(text string, kind *object.Kind, namespace string) (token, error) {
	var t token
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(b, &t)
	}
	if err != nil || t.Revision <= 0 && t.Revision != latest || t.After == "" || t.Resource != kind.Resource() ||
		namespace != "" && !strings.HasPrefix(t.After, namespace+"/") {
		return token{}, apierrors.New(apierrors.BadRequest, "the continue token is not valid for this list")
	}
	return t, nil
}

// List returns objects in the order of their keys, as they were at one revision (OBJ-6). All pages of a list show the
// revision of the first; when that is no longer kept, the error is Expired, with a token for the rest as it is now.
func (s *Store) List(ctx context.Context, kind *object.Kind, opts ListOptions) (object.Items, error) {
	k, err := s.kind(kind)
	if err != nil {
		return object.Items{}, err
	}
	req := watchcache.ListOptions{
		Selection: watchcache.Selection{Namespace: opts.Namespace, Label: opts.Label, Field: opts.Field}, Limit: opts.Limit,
	}
	if err := s.listRevision(ctx, kind, opts, &req); err != nil {
		return object.Items{}, err
	}
	// That a revision is kept must not depend on how often this kind changes: a cache may have it for days.
	if req.Exact > 0 && req.Exact < s.aged.Load() {
		return object.Items{}, tooOld(kind, req.After)
	}
	page, ok, err := k.cache.List(req)
	if err == nil && !ok {
		page, err = s.listAt(ctx, k, req)
	}
	if err != nil {
		return object.Items{}, err
	}
	meta := &metav1.ListMeta{ResourceVersion: strconv.FormatInt(page.Revision, 10)}
	if page.Last != "" {
		meta.Continue = token{Resource: kind.Resource(), Revision: page.Revision, After: page.Last}.String()
		if page.Remaining >= 0 {
			meta.RemainingItemCount = &page.Remaining
		}
	}
	return object.Items{Meta: meta, Objects: page.Objects}, nil
}

// listRevision works out which revision is wanted, and waits until it is there.
func (s *Store) listRevision(
	ctx context.Context, kind *object.Kind, opts ListOptions, req *watchcache.ListOptions,
) error {
	match, rv := opts.ResourceVersionMatch, opts.ResourceVersion
	bad := func(format string, args ...any) error { return apierrors.New(apierrors.BadRequest, format, args...) }
	switch {
	case opts.Limit < 0:
		return bad("limit must not be negative")
	case match != "" && match != "Exact" && match != "NotOlderThan":
		return bad("resourceVersionMatch %q: supported values: \"Exact\", \"NotOlderThan\"", match)
	case opts.Continue != "" && match != "":
		return bad("resourceVersionMatch is forbidden when continue is provided")
	case opts.Continue != "" && rv != "" && rv != "0":
		return bad("specifying resource version is not allowed when using continue")
	case match != "" && rv == "":
		return bad("resourceVersionMatch is forbidden unless resourceVersion is provided")
	case match == "Exact" && rv == "0":
		return bad("resourceVersionMatch \"Exact\" is forbidden for resourceVersion \"0\"")
	}
	if opts.Continue != "" {
		t, err := parseToken(opts.Continue, kind, opts.Namespace)
		if err != nil {
			return err
		}
		req.After = t.After
		if t.Revision == latest {
			_, err = s.fresh(ctx, "")
			return err
		}
		req.Exact = t.Revision
		_, err = s.fresh(ctx, strconv.FormatInt(t.Revision, 10))
		return err
	}
	if rv == "0" {
		req.Limit = 0 // as the watch cache of Kubernetes answers, which clients that ask for any state take for whole
	}
	revision, err := s.fresh(ctx, rv)
	// A page at a revision without a match means exactly that one, as in Kubernetes.
	if match == "Exact" || match == "" && opts.Limit > 0 && revision > 0 {
		req.Exact = revision
	}
	return err
}

// listAt reads a revision that is no longer in memory from etcd.
func (s *Store) listAt(ctx context.Context, k *kind, opts watchcache.ListOptions) (watchcache.Page, error) {
	old := watchcache.New(watchcache.Config{Kind: k.res.Kind, Field: k.res.Field})
	var items []*watchcache.Item
	prefix := k.prefix
	if opts.Namespace != "" {
		prefix += opts.Namespace + "/"
	}
	_, err := s.readAll(ctx, prefix, opts.Exact, func(kvs []*mvccpb.KeyValue) error {
		for _, kv := range kvs {
			item, err := k.share(strings.TrimPrefix(string(kv.Key), k.prefix), kv)
			if err != nil {
				return err
			}
			items = append(items, item)
		}
		return nil
	})
	switch {
	case errors.Is(err, etcd.ErrCompacted):
		return watchcache.Page{}, tooOld(k.res.Kind, opts.After)
	case err != nil:
		return watchcache.Page{}, s.readError(err)
	}
	// The same code that lists the present lists the past.
	old.Replace(items, opts.Exact, nil)
	page, _, err := old.List(opts)
	return page, err
}

// tooOld says, in the words of Kubernetes, which clients show, that a revision is no longer kept: that of the page
// after a key, with a token for the rest as it is now, or that of a list, where after is empty.
func tooOld(kind *object.Kind, after string) error {
	if after == "" {
		return apierrors.New(apierrors.Expired, "The resourceVersion for the provided list is too old.")
	}
	expired := apierrors.New(apierrors.Expired, "The provided continue parameter is too old to display a consistent "+
		"list result. You can start a new list without the continue parameter, or use the continue token in this "+
		"response to retrieve the remainder of the results. Continuing with the provided token results in an "+
		"inconsistent list - objects that were created, modified, or deleted between the time the first chunk was "+
		"returned and now may show up in the list.")
	rest := token{Resource: kind.Resource(), Revision: latest, After: after}
	expired.Status().Metadata = &metav1.ListMeta{Continue: rest.String()}
	return expired
}

func (s *Store) kind(k *object.Kind) (*kind, error) {
	if k == nil {
		return nil, errors.New("store: no kind")
	}
	kd := s.byKind[k]
	if kd == nil {
		return nil, fmt.Errorf("store: kind %s is not stored", k.Resource())
	}
	return kd, nil
}
