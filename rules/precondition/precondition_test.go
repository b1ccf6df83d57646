package precondition_test

import (
	"strings"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/rules/precondition"
)

func ptr(s string) *string { return &s }

// What a request expects of an object with uid u and revision 7.
//
// spec: DEL-5, DEL-11
func TestCheck(t *testing.T) {
	const uid = "Precondition failed: UID in precondition: v, UID in object meta: u"
	const revision = "Precondition failed: ResourceVersion in precondition: 8, ResourceVersion in object meta: 7"
	of := func(uid, revision *string) precondition.Expected {
		p := &metav1.Preconditions{Uid: uid, ResourceVersion: revision}
		return precondition.Of(&metav1.DeleteOptions{Preconditions: p})
	}
	for _, c := range []struct {
		name   string
		expect precondition.Expected
		broken string
	}{
		{"no options", precondition.Of(nil), ""},
		{"no preconditions", precondition.Of(&metav1.DeleteOptions{}), ""},
		{"empty preconditions", of(nil, nil), ""},
		{"both hold", of(ptr("u"), ptr("7")), ""},
		{"another uid", of(ptr("v"), nil), uid},
		{"an empty uid", of(ptr(""), nil), "Precondition failed: UID in precondition: , UID in object meta: u"},
		{"another revision", of(ptr("u"), ptr("8")), revision},
		{"revision 0", of(nil, ptr("0")), strings.Replace(revision, "8", "0", 1)},
		{"the uid comes first", of(ptr("v"), ptr("8")), uid},
		{"nothing named", precondition.Named("", ""), ""},
		{"both named", precondition.Named("u", "7"), ""},
		{"another uid named", precondition.Named("v", "7"), uid},
		{"another revision named", precondition.Named("", "8"), revision},
	} {
		m := &metav1.ObjectMeta{Name: "web", Uid: "u", ResourceVersion: "7"}
		if got := c.expect.Broken(m.Uid, m.ResourceVersion); got != c.broken {
			t.Errorf("%s: %q, want %q", c.name, got, c.broken)
		}
		err := c.expect.Check(corev1.PodKind, m)
		if c.broken == "" && err == nil {
			continue
		}
		want := apierrors.NewConflict(corev1.PodKind, "web", "%s", c.broken)
		if !apierrors.Is(err, apierrors.Conflict) || err.Error() != want.Error() {
			t.Errorf("%s: %v, want %v", c.name, err, want)
		}
	}
}

// Bindings and updates are judged without garbage.
func TestAllocations(t *testing.T) {
	m := &metav1.ObjectMeta{Name: "web", Uid: "u", ResourceVersion: "7"}
	if n := testing.AllocsPerRun(100, func() {
		if precondition.Named(m.Uid, m.ResourceVersion).Check(corev1.PodKind, m) != nil {
			t.Error("refused")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
