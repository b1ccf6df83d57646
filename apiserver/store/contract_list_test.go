package store

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/object"
)

func list(t testing.TB, s *Store, opts ListOptions) object.Items {
	t.Helper()
	items, err := s.List(t.Context(), corev1.PodKind, opts)
	if err != nil {
		t.Fatal(err)
	}
	return items
}

func names(items object.Items) []string {
	var out []string
	for _, o := range items.Objects {
		out = append(out, objectKey(o.GetMetadata().GetNamespace(), o.GetMetadata().GetName()))
	}
	return out
}

func wantNames(t testing.TB, items object.Items, want ...string) {
	t.Helper()
	if got := names(items); !slices.Equal(got, want) {
		t.Errorf("listed %v, want %v", got, want)
	}
}

// spec: OBJ-6
func contractList(t *testing.T, s *Store) {
	empty := list(t, s, ListOptions{})
	if len(empty.Objects) != 0 || empty.Meta.GetResourceVersion() == "" || empty.Meta.GetResourceVersion() == "0" {
		t.Errorf("an empty list: %v", empty)
	}
	for _, p := range []*corev1.Pod{pod("b", "1"), pod("a", "2"), pod("a-b", "1"), pod("a", "1")} {
		create(t, s, p)
	}
	all := list(t, s, ListOptions{})
	wantNames(t, all, "a-b/1", "a/1", "a/2", "b/1") // as etcd orders keys
	if rev, _ := s.Revision(t.Context()); all.Meta.GetResourceVersion() != itoa(rev) {
		t.Errorf("list at %s, store at %d", all.Meta.GetResourceVersion(), rev)
	}
	wantNames(t, list(t, s, ListOptions{Namespace: "a"}), "a/1", "a/2")
	wantNames(t, list(t, s, ListOptions{Namespace: "none"}))
	page := list(t, s, ListOptions{Namespace: "a", Limit: 1})
	wantNames(t, page, "a/1")
	if page.Meta.GetRemainingItemCount() != 1 {
		t.Errorf("remaining %d", page.Meta.GetRemainingItemCount())
	}
	page = list(t, s, ListOptions{Namespace: "a", Limit: 1, Continue: page.Meta.Continue})
	wantNames(t, page, "a/2")
	if page.Meta.Continue != "" || page.Meta.RemainingItemCount != nil {
		t.Errorf("the last page says %v", page.Meta)
	}
	exact := list(t, s, ListOptions{Limit: 4})
	if exact.Meta.Continue != "" {
		t.Error("a token after everything")
	}
}

// spec: OBJ-6
func contractSelectors(t *testing.T, s *Store) {
	for i := range 6 {
		p := pod("default", fmt.Sprint(i))
		p.Metadata.Labels = map[string]string{"parity": fmt.Sprint(i % 2), "third": fmt.Sprint(i % 3)}
		p.Spec.NodeName = fmt.Sprint("n", i%3)
		p.Status = &corev1.PodStatus{Phase: []string{"Running", "Pending"}[i/3]}
		create(t, s, p)
	}
	parse := func(text string) fields.Selector { return fields.ParseSelectorOrDie(text) }
	label := func(text string) labels.Selector {
		l, err := labels.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	d := func(names ...string) []string {
		for i := range names {
			names[i] = "default/" + names[i]
		}
		return names
	}
	for _, c := range []struct {
		opts ListOptions
		want []string
	}{
		{ListOptions{Field: parse("spec.nodeName=n1")}, d("1", "4")},
		{ListOptions{Field: parse("spec.nodeName=n1"), Namespace: "other"}, nil},
		{ListOptions{Field: parse("spec.nodeName=n1,status.phase!=Running")}, d("4")},
		{ListOptions{Field: parse("spec.nodeName!=n1"), Label: label("parity=0")}, d("0", "2")},
		{ListOptions{Label: label("parity in (1),third notin (0)")}, d("1", "5")},
		{ListOptions{Field: parse("metadata.name=3")}, d("3")},
		{ListOptions{Field: parse("metadata.name=3"), Namespace: "default"}, d("3")},
		{ListOptions{Field: parse("metadata.name=3,metadata.namespace=default")}, d("3")},
		{ListOptions{Field: parse("metadata.name=3,metadata.namespace=x")}, nil},
		{ListOptions{Field: parse("metadata.name=3,metadata.name=4")}, nil},
		{ListOptions{Field: parse("metadata.name=")}, nil},
		{ListOptions{Field: parse("metadata.name!=3"), Label: label("third=0")}, d("0")},
		{ListOptions{Label: labels.Nothing()}, nil},
		{ListOptions{Field: parse("spec.nodeName=")}, nil},
	} {
		t.Run(fmt.Sprint(c.opts.Field, c.opts.Label), func(t *testing.T) {
			wantNames(t, list(t, s, c.opts), c.want...)
			// Pages give the same.
			paged := c.opts
			paged.Limit = 1
			var got []string
			for {
				page := list(t, s, paged)
				got = append(got, names(page)...)
				if page.Meta.RemainingItemCount != nil && c.opts.Field != nil {
					t.Error("remainingItemCount with a selector")
				}
				if paged.Continue = page.Meta.Continue; paged.Continue == "" {
					break
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("in pages %v, want %v", got, c.want)
			}
		})
	}
	_, err := s.List(t.Context(), corev1.PodKind, ListOptions{Field: parse("spec.hostname=x")})
	wantReason(t, err, apierrors.BadRequest)
	_, err = s.List(t.Context(), corev1.NodeKind, ListOptions{Field: parse("spec.podCIDR=x")})
	wantReason(t, err, apierrors.BadRequest)
}

// spec: OBJ-6
func contractListRevisions(t *testing.T, s *Store) {
	r1 := create(t, s, pod("default", "a"))
	r2 := create(t, s, pod("default", "b"))
	create(t, s, &corev1.Node{Metadata: &metav1.ObjectMeta{Name: "n"}})
	remove(t, s, podKey("default", "a"))
	r5, _ := s.Revision(t.Context())
	wantNames(t, list(t, s, ListOptions{ResourceVersion: itoa(r1), ResourceVersionMatch: "Exact"}), "default/a")
	old := list(t, s, ListOptions{ResourceVersion: itoa(r2), ResourceVersionMatch: "Exact", Limit: 1})
	wantNames(t, old, "default/a")
	if old.Meta.GetRemainingItemCount() != 1 || old.Objects[0].GetMetadata().GetResourceVersion() != itoa(r1) {
		t.Errorf("an old page: %v", old)
	}
	wantNames(t, list(t, s, ListOptions{Continue: old.Meta.Continue}), "default/b")
	wantNames(t, list(t, s, ListOptions{ResourceVersion: itoa(r2 + 1), ResourceVersionMatch: "Exact"}), "default/a",
		"default/b")
	wantNames(t, list(t, s, ListOptions{ResourceVersion: itoa(r1), ResourceVersionMatch: "NotOlderThan"}), "default/b")
	wantNames(t, list(t, s, ListOptions{ResourceVersion: itoa(r1)}), "default/b")
	wantNames(t, list(t, s, ListOptions{ResourceVersion: "0"}), "default/b")
	wantNames(t, list(t, s, ListOptions{ResourceVersion: itoa(r1), Limit: 10}), "default/a")
	for _, c := range []struct {
		opts ListOptions
		want apierrors.Reason
	}{
		{ListOptions{ResourceVersion: itoa(r5 + 1)}, apierrors.Timeout},
		{ListOptions{ResourceVersion: itoa(r5 + 1), ResourceVersionMatch: "Exact"}, apierrors.Timeout},
		{ListOptions{ResourceVersion: "x"}, apierrors.BadRequest},
		{ListOptions{ResourceVersionMatch: "Exact"}, apierrors.BadRequest},
		{ListOptions{ResourceVersion: "0", ResourceVersionMatch: "Exact"}, apierrors.BadRequest},
		{ListOptions{ResourceVersion: "1", ResourceVersionMatch: "Newest"}, apierrors.BadRequest},
		{ListOptions{Continue: "x"}, apierrors.BadRequest},
		{ListOptions{Continue: token{"pods", 0, "a"}.String()}, apierrors.BadRequest},
		{ListOptions{Continue: token{"nodes", 1, "a"}.String()}, apierrors.BadRequest},
		{ListOptions{Continue: old.Meta.Continue, Namespace: "other"}, apierrors.BadRequest},
		{ListOptions{Continue: old.Meta.Continue, ResourceVersion: "1"}, apierrors.BadRequest},
		{ListOptions{Continue: old.Meta.Continue, ResourceVersion: "0", ResourceVersionMatch: "NotOlderThan"},
			apierrors.BadRequest},
		{ListOptions{Limit: -1}, apierrors.BadRequest},
	} {
		_, err := s.List(t.Context(), corev1.PodKind, c.opts)
		wantReason(t, err, c.want)
	}
	s.compact(t.Context(), r5)
	_, err := s.List(t.Context(), corev1.PodKind, ListOptions{ResourceVersion: itoa(r1), ResourceVersionMatch: "Exact"})
	wantReason(t, err, apierrors.Expired)
	_, err = s.List(t.Context(), corev1.PodKind, ListOptions{Continue: old.Meta.Continue})
	wantReason(t, err, apierrors.Expired)
	// The answer has a token for the rest as it is now, which goes on like any other.
	r6 := create(t, s, pod("default", "c"))
	rest := list(t, s, ListOptions{Continue: apierrors.From(err).Status().GetMetadata().GetContinue(), Limit: 1})
	wantNames(t, rest, "default/b")
	if rest.Meta.GetResourceVersion() != itoa(r6) {
		t.Errorf("the rest is as of %s, want %d", rest.Meta.GetResourceVersion(), r6)
	}
	wantNames(t, list(t, s, ListOptions{Continue: rest.Meta.Continue}), "default/c")
}

// spec: OBJ-6
func contractPagesWhileWriting(t *testing.T, s *Store) {
	const n = 60
	for i := range n {
		create(t, s, pod("default", fmt.Sprintf("%03d", i)))
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			key := podKey("default", fmt.Sprintf("%03d", i%n))
			relabel(t, s, key, fmt.Sprint(i))
			if i%3 == 0 {
				remove(t, s, key)
				create(t, s, pod("default", key.Name))
			}
		}
	})
	for range 20 {
		opts := ListOptions{Limit: 7}
		var got []string
		revision := ""
		for {
			page := list(t, s, opts)
			if revision == "" {
				revision = page.Meta.ResourceVersion
			}
			if page.Meta.ResourceVersion != revision {
				t.Errorf("page at %s, list at %s", page.Meta.ResourceVersion, revision)
			}
			for _, o := range page.Objects {
				got = append(got, fmt.Sprint(o.GetMetadata().GetName(), "@", o.GetMetadata().GetResourceVersion()))
			}
			if opts.Continue = page.Meta.Continue; opts.Continue == "" {
				break
			}
		}
		var want []string
		whole := list(t, s, ListOptions{ResourceVersion: revision, ResourceVersionMatch: "Exact"})
		for _, o := range whole.Objects {
			want = append(want, fmt.Sprint(o.GetMetadata().GetName(), "@", o.GetMetadata().GetResourceVersion()))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("at %s pages gave\n%v\nthe whole list\n%v", revision, got, want)
		}
	}
	close(stop)
	wg.Wait()
}
