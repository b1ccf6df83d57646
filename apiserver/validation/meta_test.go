package validation_test

import (
	"testing"

	"monoplane.dev/apiserver/kinds/test/kindtest"
	"monoplane.dev/apiserver/validation"

	metav1 "monoplane.dev/api/meta/v1"
)

// spec: OBJ-4
func TestCoreMeta(t *testing.T) {
	yes := true
	for name, c := range map[string]struct {
		meta *metav1.ObjectMeta
		want []string
	}{
		"a generated name": {&metav1.ObjectMeta{Name: "a-x", GenerateName: "a-"}, nil},
		"a prefix that is wrong": {&metav1.ObjectMeta{GenerateName: "A-"},
			[]string{"Invalid metadata.generateName", "Required metadata.name"}},
		"two controllers": {&metav1.ObjectMeta{Name: "a", OwnerReferences: []*metav1.OwnerReference{
			{ApiVersion: "v1", Kind: "K", Name: "a", Uid: "1", Controller: &yes},
			{ApiVersion: "a/v1", Kind: "K", Name: "b", Uid: "2", Controller: &yes},
		}}, []string{"Invalid metadata.ownerReferences"}},
		"finalizers that contradict each other": {
			&metav1.ObjectMeta{Name: "a", Finalizers: []string{"orphan", "foregroundDeletion"}},
			[]string{"Invalid metadata.finalizers"},
		},
	} {
		f := &validation.Faults{}
		for f.Pass() {
			f.CoreMeta(c.meta, nil, false, validation.NameIsSubdomain)
		}
		kindtest.Judge(t, name, f.Causes(), c.want...)
	}
}
