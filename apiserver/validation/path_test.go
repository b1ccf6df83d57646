package validation

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Paths read as those of apimachinery do.
func TestPathsReadAsInKubernetes(t *testing.T) {
	f := faults{names: true}
	for _, c := range []struct {
		got  *fieldPath
		want *field.Path
	}{
		{f.root("spec"), field.NewPath("spec")},
		{f.root(""), field.NewPath("")},
		{f.root("spec").Child("containers").Index(2).Child("name"), field.NewPath("spec").Child("containers").Index(2).Child("name")},
		{f.root("data").Key("a.b/c"), field.NewPath("data").Key("a.b/c")},
		{f.root("data").Key("").Child("x"), field.NewPath("data").Key("").Child("x")},
		{f.root("data").Child(""), field.NewPath("data").Child("")},
	} {
		if c.got.String() != c.want.String() {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

// The first pass makes no paths, and an object without faults sees no second one.
func TestPasses(t *testing.T) {
	for _, faulty := range []bool{false, true} {
		var f faults
		passes := 0
		for f.pass() {
			passes++
			if (f.root("a").Child("b") != nil) != (passes == 2) {
				t.Errorf("pass %d: wrong path", passes)
			}
			if faulty {
				f.required(f.root("a").Child("b"), "")
				f.required(f.root("a").Child("b"), "") // told once
			}
		}
		if want := map[bool]int{true: 2, false: 1}[faulty]; passes != want || len(f.causes()) != want-1 {
			t.Errorf("faulty %v: %d passes, causes %v", faulty, passes, f.causes())
		}
	}
}
