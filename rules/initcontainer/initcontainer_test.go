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
	for policy, want := range map[string]bool{"": false, "Always": true, "OnFailure": false, "Never": false, "always": false} {
		if initcontainer.IsSidecar(&corev1.Container{RestartPolicy: &policy}) != want {
			t.Errorf("restart policy %q: want %v", policy, want)
		}
	}
}
