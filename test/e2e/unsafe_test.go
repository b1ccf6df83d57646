package e2e_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// What somebody else has made of a data directory, or could, is refused before anything is read or written: by a line
// that names it and says what to do. Nothing is changed.
func TestUnsafeDataDirectory(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--node-name", "node")
	c.pods(t, "default").run(t, sleeper("p"))
	if err := c.end(); err != nil {
		t.Fatal(err)
	}
	link := func(name string) func(dir, away string) (string, error) {
		return func(dir, away string) (string, error) {
			path := filepath.Join(dir, name)
			err := os.Remove(path)
			if errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
			return path, errors.Join(err, os.Symlink(away, path))
		}
	}
	mode := func(name string, mode fs.FileMode) func(dir, away string) (string, error) {
		return func(dir, _ string) (string, error) {
			path := filepath.Join(dir, name)
			return path, os.Chmod(path, mode)
		}
	}
	foreign := func(name string) func(dir, away string) (string, error) {
		return func(dir, _ string) (string, error) {
			path := filepath.Join(dir, name)
			return path, os.Lchown(path, 54321, 54321)
		}
	}
	type arrangement struct {
		name  string
		do    func(dir, away string) (string, error)
		again bool // further commands refuse it too
	}
	all := []arrangement{
		{"a directory that all may write", mode(".", 0o777), true},
		{"a directory above that all may write", mode("..", 0o777), true},
		{"a lock that is a link", link("lock"), true},
		{"a lock that all may write", mode("lock", 0o666), true},
		{"a key that is a link", link("machine-key"), false},
		{"a key that all may read", mode("machine-key", 0o644), false},
		{"an authority's key that is a link", link("pki/ca.key"), false},
		{"an authority's certificate that is a link", link("pki/ca.crt"), false},
		{"certificates that all may read", mode("pki", 0o755), false},
		{"a token that all may read", mode("pki/admin.token", 0o644), false},
		{"a database that is a link", link("etcd/member/snap/db"), false},
		{"a database that all may write", mode("etcd/member/snap/db", 0o666), false},
		{"a directory of the log that all may write", mode("etcd/member/wal", 0o777), false},
		{"a node that all may write", mode("nodes/node", 0o777), false},
		{"the pods' directory, which all may write", mode("nodes/node/pods", 0o777), false},
		{"logs that all may write", mode("nodes/node/logs", 0o777), false},
		{"a record that is a link", link("nodes/node/pods/pods/new"), false},
	}
	if os.Geteuid() == 0 { // only root can give something away
		for _, name := range []string{
			".", "..", "lock", "machine-key", "pki", "pki/ca.key", "etcd", "etcd/member/snap/db", "nodes", "nodes/node", "nodes/node/pods", "nodes/node/logs",
		} {
			all = append(all, arrangement{name + " of another user", foreign(name), name == "." || name == ".." || name == "lock"})
		}
	}
	for _, a := range all {
		t.Run(a.name, func(t *testing.T) {
			dir := shortDir(t)
			copyDir(t, c.dir, dir)
			away := filepath.Join(t.TempDir(), "away")
			if err := os.WriteFile(away, []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
			path, err := a.do(dir, away)
			if err != nil {
				t.Fatal(err)
			}
			// With the confirmation, since the directory is a copy.
			refused(t, monoplane(t, nil, upArgs(dir, "--node-name", "node", confirmation)...), path+" is not safe to use", "; ")
			if a.again {
				for _, args := range [][]string{{"down"}, {"snapshot", "save", away + ".db"}, {"why", "p"}} {
					refused(t, monoplane(t, nil, append(args, "--data-dir", dir)...), path+" is not safe to use")
				}
			}
			if text, err := os.ReadFile(away); err != nil || string(text) != "precious" {
				t.Errorf("what a link leads to holds %q, %v", text, err)
			}
		})
	}
	for _, a := range []arrangement{{name: "a link", do: link("kubeconfig")}, {name: "for all to read", do: mode("kubeconfig", 0o644)}} {
		t.Run("a kubeconfig that is "+a.name, func(t *testing.T) {
			dir := shortDir(t)
			copyDir(t, c.dir, dir)
			path, err := a.do(dir, filepath.Join(t.TempDir(), "away"))
			if err != nil {
				t.Fatal(err)
			}
			refused(t, monoplane(t, nil, "kubeconfig", "--data-dir", dir), path+" is not safe to use")
			refused(t, monoplane(t, nil, "down", "--data-dir", dir), path+" is not safe to use")
		})
	}
}
