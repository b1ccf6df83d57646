package cgroup

import (
	"os"
	"path/filepath"
	"testing"

	"monoplane.dev/nodeagent/runtime/host/sys"
)

// tree makes a group of files.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// What counts them is asked first; without it every thread of the group and below has a line.
func TestTasks(t *testing.T) {
	counted := map[string]string{"pids.current": "7\n", "cgroup.threads": "1\n", "tasks": "1\n"}
	listed := map[string]string{"cgroup.threads": "1\n2\n", "below/cgroup.threads": "3\n", "below/x/cgroup.threads": "",
		"tasks": "1\n2\n3\n", "below/tasks": "4\n", "other/file": "1\n2\n"}
	for name, x := range map[string]struct {
		g    sys.Cgroup
		want int64
	}{
		"v2 counts":          {sys.Cgroup{Unified: tree(t, counted)}, 7},
		"v2 lists":           {sys.Cgroup{Unified: tree(t, listed), V1: []string{tree(t, counted)}}, 3},
		"v1 counts":          {sys.Cgroup{V1: []string{tree(t, listed), tree(t, counted)}}, 7},
		"v1 lists":           {sys.Cgroup{V1: []string{tree(t, listed)}}, 4},
		"none":               {sys.Cgroup{}, -1},
		"one that has ended": {sys.Cgroup{Unified: filepath.Join(t.TempDir(), "gone")}, -1},
	} {
		if got := Tasks(x.g); got != x.want {
			t.Errorf("%s: %d, want %d", name, got, x.want)
		}
	}
}
