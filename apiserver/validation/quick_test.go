package validation

import (
	"math/rand/v2"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

// What is looked at by hand is right exactly when apimachinery finds nothing wrong.
func TestQuickNamesAgreeWithApimachinery(t *testing.T) {
	checks := map[string]struct {
		quick func(string) bool
		slow  func(string) []string
	}{
		"label":          {isLabel, validation.IsDNS1123Label},
		"subdomain":      {isSubdomain, validation.IsDNS1123Subdomain},
		"qualified name": {isQualifiedName, validation.IsQualifiedName},
		"label value":    {func(s string) bool { return s == "" || isName(s) }, validation.IsValidLabelValue},
		"port name":      {isPortName, validation.IsValidPortName},
	}
	accepted := map[string]int{}
	try := func(s string) {
		for name, c := range checks {
			if got, want := c.quick(s), len(c.slow(s)) == 0; got != want {
				t.Fatalf("%s %q: %v, want %v", name, s, got, want)
			} else if got {
				accepted[name]++
			}
		}
	}
	try("")
	// All short texts of what matters, and random long ones.
	const letters = "aZ5-._/ \n\x80"
	var all func(s string, n int)
	all = func(s string, n int) {
		try(s)
		for i := range len(letters) {
			if n > 0 {
				all(s+letters[i:i+1], n-1)
			}
		}
	}
	all("", 5)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		var b strings.Builder
		for range rng.IntN(12) {
			b.WriteString(strings.Repeat(string(letters[min(rng.IntN(40), len(letters)-1)%7]), 1+rng.IntN(2)))
			b.WriteString(strings.Repeat("a", rng.IntN(30)))
		}
		try(b.String())
	}
	for _, n := range []int{1, 15, 16, 62, 63, 64, 252, 253, 254} {
		try(strings.Repeat("a", n))
		try(strings.Repeat("a", n) + "/" + strings.Repeat("b", 63))
		try("a/" + strings.Repeat("b", n))
	}
	for name := range checks {
		if accepted[name] < 100 {
			t.Errorf("%s: only %d texts are right", name, accepted[name])
		}
	}
}
