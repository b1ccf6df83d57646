package oracle

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage"

	"monoplane.dev/rules/precondition"
)

// What a request expects of an object holds alike, and is refused in the same words.
//
// spec: DEL-5, DEL-11
func TestPreconditionsAreJudgedAlike(t *testing.T) {
	r := random(t)
	broken := 0
	for range *count {
		have := &v1.Pod{}
		have.UID, have.ResourceVersion = types.UID(pick(r, []string{"a", "b"})), pick(r, []string{"1", "2"})
		var theirs storage.Preconditions
		var ours precondition.Expected
		if r.IntN(2) == 0 {
			uid := pick(r, []string{"a", "b", ""})
			theirs.UID, ours.UID = ptr(types.UID(uid)), &uid
		}
		if r.IntN(2) == 0 {
			revision := pick(r, []string{"1", "2", "0", ""})
			theirs.ResourceVersion, ours.ResourceVersion = &revision, &revision
		}
		want, got := "", ours.Broken(string(have.UID), have.ResourceVersion)
		if err := theirs.Check("key", have); err != nil {
			want = err.Error()
			broken++
		}
		if (want == "") != (got == "") || !strings.Contains(want, got) {
			t.Fatalf("expected %v, have %s at %s: %q for Kubernetes, %q for Monoplane",
				theirs, have.UID, have.ResourceVersion, want, got)
		}
	}
	if broken < *count/5 || broken == *count {
		t.Errorf("%d of %d were broken", broken, *count)
	}
}
