package controllers_test

import (
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
