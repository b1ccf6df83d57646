package initcontainer_test

import (
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/initcontainer"
)

// spec: INIT-4
func TestIsSidecar(t *testing.T) {
	if initcontainer.IsSidecar(nil) || initcontainer.IsSidecar(&corev1.Container{}) {
		t.Error("an init container without a restart policy is a sidecar")
	}
	for _, policy := range []string{"", "Always", "OnFailure", "Never", "always"} {
		if is := initcontainer.IsSidecar(&corev1.Container{RestartPolicy: &policy}); is != (policy == "Always") {
			t.Errorf("restart policy %q: %v", policy, is)
		}
	}
}
