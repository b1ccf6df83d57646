package watchcache

import (
	"slices"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/object"
)

// A follower is told of what there is, of every change, and of what a new start of the cache has missed.
//
// spec: OBJ-7
func TestFollow(t *testing.T) {
	labeled := func(name, label string) object.Object {
		return &corev1.ConfigMap{Metadata: &metav1.ObjectMeta{Namespace: "d", Name: name,
			Labels: map[string]string{"v": label}}}
	}
	state := func(o object.Object) string {
		if o == nil {
			return "-"
		}
		return o.GetMetadata().GetName() + o.GetMetadata().GetLabels()["v"]
	}
	f := newFeeder(Config{Kind: corev1.ConfigMapKind})
	f.put(labeled("a", "1"))
	var told []string
	f.c.Follow(func(was, is object.Object) { told = append(told, state(was)+">"+state(is)) })
	f.put(labeled("b", "1"))
	f.put(labeled("a", "2"))
	f.remove("d/b")
	f.put(labeled("c", "1"))
	item := func(name, label string) *Item {
		return &Item{Key: "d/" + name, Object: labeled(name, label), Revision: 9}
	}
	f.c.Replace([]*Item{item("c", "2"), item("e", "1")}, 9, nil)
	want := []string{"->a1", "->b1", "a1>a2", "b1>-", "->c1", "a2>-", "c1>c2", "->e1"}
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
