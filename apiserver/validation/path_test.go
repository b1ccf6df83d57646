package validation

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Paths read as those of apimachinery do.
func TestPathsReadAsInKubernetes(t *testing.T) {
	f := Faults{names: true}
	for _, c := range []struct {
		got  *Path
		want *field.Path
	}{
		{f.Root("spec"), field.NewPath("spec")},
		{f.Root(""), field.NewPath("")},
		{f.Root("spec").Child("containers").Index(2).Child("name"),
			field.NewPath("spec").Child("containers").Index(2).Child("name")},
		{f.Root("data").Key("a.b/c"), field.NewPath("data").Key("a.b/c")},
		{f.Root("data").Key("").Child("x"), field.NewPath("data").Key("").Child("x")},
		{f.Root("data").Child(""), field.NewPath("data").Child("")},
	} {
		if c.got.String() != c.want.String() {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

// The first pass makes no paths, and an object without faults sees no second one.
func TestPasses(t *testing.T) {
	for _, faulty := range []bool{false, true} {
		var f Faults
		passes := 0
		for f.Pass() {
			passes++
			if (f.Root("a").Child("b") != nil) != (passes == 2) {
				t.Errorf("pass %d: wrong path", passes)
			}
			if faulty {
				f.Required(f.Root("a").Child("b"), "")
				f.Required(f.Root("a").Child("b"), "") // told once
			}
		}
		if want := map[bool]int{true: 2, false: 1}[faulty]; passes != want || len(f.Causes()) != want-1 {
			t.Errorf("faulty %v: %d passes, causes %v", faulty, passes, f.Causes())
		}
	}
}
