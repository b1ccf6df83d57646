package nodeagent

import (
	"os"
	"path/filepath"
	"testing"
)

// A setting is found in the group of this process or in one above it, whichever has its controller.
//
// spec: QOS-3
func TestHasSetting(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "user/scope/server"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"beside", "user/scope/memory.swap.max"} {
		if err := os.WriteFile(filepath.Join(root, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for group, want := range map[string]bool{
		"/user/scope": true, "/user/scope/server": true, "/user/scope/gone": true, "/user": false, "/": false, "": false,
		"/../../server": false,
	} {
		if got := hasSetting(root, group, "memory.swap.max"); got != want {
			t.Errorf("%q: %t, want %t", group, got, want)
		}
	}
}
