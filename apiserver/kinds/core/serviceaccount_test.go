package core_test

import (
	"testing"

	"monoplane.dev/apiserver/kinds/core"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/kinds/test/kindtest"

	corev1 "monoplane.dev/api/core/v1"
)

// spec: OBJ-4
func TestValidateServiceAccount(t *testing.T) {
	strategy := core.ServiceAccount(define.Config{}).Strategy
	named := func(name string) *corev1.ServiceAccount {
		return &corev1.ServiceAccount{Metadata: kindtest.Meta(name, "d")}
	}
	kindtest.Judge(t, "good", strategy.Validate(named("a")))
	kindtest.Judge(t, "a bad name", strategy.Validate(named("A")), "Invalid metadata.name")
	kindtest.Judge(t, "another name", strategy.Resources[""].Validate(named("b"), named("a")), "Invalid metadata.name")
}
