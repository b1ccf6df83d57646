package store

import (
	"os"
	"strings"
	"testing"

	coordinationv1 "monoplane.dev/api/coordination/v1"
	corev1 "monoplane.dev/api/core/v1"
)

// The comment in keys.go names real keys: each example is what the code builds, and the code builds nothing else.
func TestKeyTree(t *testing.T) {
	source, err := os.ReadFile("keys.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		versionKey,
		kindPrefix(corev1.PodKind) + objectKey("default", "web"),
		kindPrefix(corev1.NodeKind) + objectKey("", "n1"),
		kindPrefix(coordinationv1.LeaseKind) + objectKey("kube-node-lease", "n1"),
		turnPrefix + "priorityclasses/default",
	} {
		if !strings.Contains(string(source), "//\t"+want) {
			t.Errorf("the comment in keys.go does not show %s", want)
		}
	}
	for _, k := range []struct{ key, prefix, rest string }{
		{"/monoplane/core/pods/default/web", "/monoplane/core/pods/", "default/web"},
		{"/monoplane/core/nodes/n1", "/monoplane/core/nodes/", "n1"},
		{"/monoplane/version", "", ""}, {"/other/core/pods/default/web", "", ""}, {"", "", ""},
	} {
		prefix, rest, ok := splitKey(k.key)
		if prefix != k.prefix || rest != k.rest || ok != (k.prefix != "") {
			t.Errorf("%s splits into %q, %q, %v", k.key, prefix, rest, ok)
		}
	}
	// A store that has done everything has written under the documented tree only.
	s := open(t, testConfig(t.TempDir()))
	create(t, s, pod("default", "web"))
	create(t, s, &corev1.Event{Metadata: pod("default", "e").Metadata})
	take(t, s, "priorityclasses/default")
	for _, r := range allKeys(t, s) {
		if _, _, ok := splitKey(r); !ok && r != versionKey {
			t.Errorf("key %s is not documented", r)
		}
	}
}
