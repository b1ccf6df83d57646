package validation_test

import (
	"strings"
	"testing"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/kinds/test/kindtest"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
)

// spec: OBJ-2
func TestOptions(t *testing.T) {
	policy, orphan := "x", true
	for _, c := range []struct {
		name string
		got  []apierrors.Cause
		want []string
	}{
		{"delete options", validation.DeleteOptions(&metav1.DeleteOptions{PropagationPolicy: &policy,
			OrphanDependents: &orphan, DryRun: []string{"Some"}}),
			[]string{"Invalid propagationPolicy", "NotSupported propagationPolicy", "NotSupported dryRun"}},
		{"write options", validation.WriteOptions(object.WriteOptions{FieldManager: strings.Repeat("a", 129),
			FieldValidation: "x", DryRun: []string{""}}),
			[]string{"TooLong fieldManager", "NotSupported dryRun", "NotSupported fieldValidation"}},
		{"good write options", validation.WriteOptions(object.WriteOptions{FieldManager: "kubectl-create",
			FieldValidation: "Strict", DryRun: []string{"All"}}), nil},
	} {
		kindtest.Judge(t, c.name, c.got, c.want...)
	}
}
