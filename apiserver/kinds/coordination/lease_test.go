package coordination_test

import (
	"testing"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/kinds/coordination"
	"monoplane.dev/apiserver/kinds/test/kindtest"

	coordinationv1 "monoplane.dev/api/coordination/v1"
)

// spec: OBJ-4
func TestValidateLease(t *testing.T) {
	ptr := func(n int32) *int32 { return &n }
	holder := "a"
	for _, c := range []struct {
		name string
		got  []apierrors.Cause
		want []string
	}{
		{"lease", coordination.ValidateLease(&coordinationv1.Lease{Metadata: kindtest.Meta("l", "d"),
			Spec: &coordinationv1.LeaseSpec{
				LeaseDurationSeconds: ptr(0), LeaseTransitions: ptr(-1), PreferredHolder: &holder,
			}}), []string{"Invalid spec.leaseDurationSeconds", "Invalid spec.leaseTransitions",
			"Forbidden spec.preferredHolder"}},
		{"lease without spec", coordination.ValidateLeaseUpdate(&coordinationv1.Lease{Metadata: kindtest.Meta("l", "d")},
			&coordinationv1.Lease{Metadata: kindtest.Meta("l", "d")}), nil},
	} {
		kindtest.Judge(t, c.name, c.got, c.want...)
	}
}
