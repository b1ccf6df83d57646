package monoplane_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/version"

	"monoplane.dev"
)

// Clients parse what nodes say of their agents, whatever the version of the program, and find that of Kubernetes.
func TestKubeletVersion(t *testing.T) {
	for program, want := range map[string]string{
		"dev": "v1.36.3+monoplane.dev", "v0.3.1": "v1.36.3+monoplane.v0.3.1",
		"v0.3.1-4-g1a2b_x+dirty": "v1.36.3+monoplane.v0.3.1-4-g1a2b-x-dirty",
	} {
		got := monoplane.KubeletVersion(program)
		if v, err := version.ParseSemantic(got); got != want || err != nil || !v.EqualTo(version.MustParse("1.36.3")) {
			t.Errorf("%s: %s, want %s; parsed %v, %v", program, got, want, v, err)
		}
	}
}
