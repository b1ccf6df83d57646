package apiserver_test

import (
	"slices"
	"testing"

	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
)

// owners returns the entries of an object, which must be those of updates of these subresources, in any order.
func owners(t *testing.T, o object.Object, subresources ...string) []*metav1.ManagedFieldsEntry {
	t.Helper()
	var have []string
	for _, e := range o.GetMetadata().GetManagedFields() {
		if e.GetOperation() != "Update" {
			t.Errorf("an entry of operation %s", e.GetOperation())
		}
		have = append(have, e.GetSubresource())
	}
	slices.Sort(have)
	if !slices.Equal(have, subresources) {
		t.Errorf("fields were written by %q, want %q: %v", have, subresources, o.GetMetadata().GetManagedFields())
	}
	return o.GetMetadata().GetManagedFields()
}
