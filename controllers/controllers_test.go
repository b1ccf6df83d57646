package controllers_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"monoplane.dev/controllers"
)

// A name is the end of a user name, and two controllers of one name would have each other's rights.
func TestControllersAreToldApart(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range controllers.All() {
		if len(validation.IsDNS1123Label(c.Name)) > 0 || seen[c.Name] || c.New == nil || len(c.Grants) == 0 {
			t.Errorf("%q: a name that is not valid or not unique, no constructor, or no grants", c.Name)
		}
		seen[c.Name] = true
	}
}

// What an operator says is what runs.
func TestChosen(t *testing.T) {
	var all []string
	for _, c := range controllers.All() {
		all = append(all, c.Name)
	}
	but := func(left ...string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return slices.Contains(left, name) })
	}
	for words, want := range map[string][]string{
		"":                        all,
		"*":                       all,
		"*,-deployment":           but("deployment"),
		"-deployment,*,-podgc":    but("deployment", "podgc"),
		"podgc":                   {"podgc"},
		"-podgc":                  {},
		"podgc,-podgc,deployment": {"deployment"},
	} {
		var list []string
		if words != "" {
			list = strings.Split(words, ",")
		}
		got := []string{}
		chosen, err := controllers.Chosen(list)
		for _, c := range chosen {
			got = append(got, c.Name)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: got %v, %v; want %v", words, got, err, want)
		}
	}
	if _, err := controllers.Chosen([]string{"*", "-deploymint"}); err == nil ||
		!strings.Contains(err.Error(), `no controller "deploymint"`) || !strings.Contains(err.Error(), "deployment, ") {
		t.Errorf("a name that nobody has: %v", err)
	}
}
