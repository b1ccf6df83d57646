package audit_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"monoplane.dev/apiserver/audit"
)

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = string(b)
	}
	return out
}

// A file that has its size is put aside with the time in its name; those that are too many or too old go, and nothing
// else does. No line is cut in two.
func TestFilesAreBounded(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	if err := os.WriteFile(filepath.Join(dir, "audit-notes.log"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	f, err := audit.OpenFile(audit.FileConfig{
		Path: path, MaxBytes: 25, MaxBackups: 2, MaxAge: time.Hour, Now: func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var lines strings.Builder
	for i := range 8 {
		fmt.Fprintf(&lines, "line %04d\n", i) // 10 bytes: two of them fit
	}
	if n, err := f.Write([]byte(lines.String())); err != nil || n != lines.Len() {
		t.Fatal(n, err)
	}
	got := contents(t, dir)
	want := map[string]string{
		"audit-notes.log":                   "mine",
		"audit-2026-03-01T12-00-00.001.log": "line 0002\nline 0003\n",
		"audit-2026-03-01T12-00-00.002.log": "line 0004\nline 0005\n",
		"audit.log":                         "line 0006\nline 0007\n",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("files %v, want %v", got, want)
	}
	now = now.Add(2 * time.Hour)
	if _, err := f.Write([]byte("line that is longer than a file may be\n")); err != nil {
		t.Fatal(err)
	}
	got = contents(t, dir)
	aside := got["audit-2026-03-01T14-00-00.000.log"]
	if len(got) != 3 || aside == "" || !strings.HasPrefix(got["audit.log"], "line that") {
		t.Errorf("after two hours: %v", got)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestFileThatCannotBeWritten(t *testing.T) {
	if _, err := audit.OpenFile(audit.FileConfig{Path: filepath.Join(t.TempDir(), "none", "audit.log")}); err == nil {
		t.Error("a file in a directory that is not there can be opened")
	}
}
