package oracle

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	oa "monoplane.dev/api/apps/v1"
	ourapps "monoplane.dev/apiserver/kinds/apps"
)

// bytesOf is an object of which not every one can be written in JSON.
func bytesOf(t testing.TB, o upstream) []byte {
	t.Helper()
	data, err := o.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestControllerRevisionsAreJudgedAlike(t *testing.T) {
	states := []string{`{"a":"b"}`, `{}`, `[]`, `null`, `1`, `{`, `"x"`, `{"a":{"b":[1,2]}}`}
	r := random(t)
	bad := 0
	for i := 0; i < *count && bad < 25; i++ {
		base := func() *appsv1.ControllerRevision {
			return &appsv1.ControllerRevision{
				ObjectMeta: metav1.ObjectMeta{Name: "r", Namespace: "default", ResourceVersion: "1"},
				Data:       runtime.RawExtension{Raw: []byte(states[0])}, Revision: 3,
			}
		}
		old, k := base(), base()
		what := append(alter(r, &k.ObjectMeta, r.IntN(3), nil), "revision", "data")
		k.Revision = pick(r, numbers)
		if r.IntN(2) == 0 {
			k.Data.Raw = []byte(pick(r, states))
		}
		if r.IntN(10) == 0 {
			k.Data.Raw = nil
		}
		what = append(what, string(k.Data.Raw))
		theirs := ask[verdict](t, "controllerrevisions", bytesOf(t, k), bytesOf(t, old))
		o, err := ours(k, &oa.ControllerRevision{})
		if err != nil {
			t.Fatal(err)
		}
		before, err := ours(old, &oa.ControllerRevision{})
		if err != nil {
			t.Fatal(err)
		}
		ourapps.DefaultControllerRevision(o)
		created := compare(theirs.Created,
			ourFaults(ourapps.ValidateControllerRevision(o)))
		updated := compare(theirs.Updated,
			ourFaults(ourapps.ValidateControllerRevisionUpdate(o, before)))
		if report(t, append(what, "create"), created) || report(t, append(what, "update"), onlyMeta(updated)) {
			bad++
		}
	}
}
