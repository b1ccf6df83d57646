package core_test

import (
	"testing"

	"monoplane.dev/apiserver/kinds/core"
	"monoplane.dev/apiserver/kinds/test/kindtest"

	corev1 "monoplane.dev/api/core/v1"
)

// spec: OBJ-4
func TestValidateServiceAccount(t *testing.T) {
	named := func(name string) *corev1.ServiceAccount {
		return &corev1.ServiceAccount{Metadata: kindtest.Meta(name, "d")}
	}
	kindtest.Judge(t, "good", core.ValidateServiceAccount(named("a")))
	kindtest.Judge(t, "a bad name", core.ValidateServiceAccount(named("A")), "Invalid metadata.name")
	kindtest.Judge(t, "another name", core.ValidateServiceAccountUpdate(named("b"), named("a")), "Invalid metadata.name")
}
