package e2e_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// arrangement is something that somebody does to a path of a data directory, and how it is undone.
type arrangement struct {
	name string
	path string // below the data directory
	do   func(path, away string) (undo func() error, err error)
	// all says that every command refuses it, not only a start.
	all bool
}

// link puts a link to away in the place of a file.
func link(path, away string) (undo func() error, err error) {
	was := filepath.Join(filepath.Dir(away), "was")
	if err := os.Rename(path, was); err != nil {
		return nil, err
	}
	return func() error { return errors.Join(os.Remove(path), os.Rename(was, path)) }, os.Symlink(away, path)
}

// mode gives a path other permissions.
func mode(want fs.FileMode) func(path, away string) (undo func() error, err error) {
	return func(path, _ string) (func() error, error) {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		return func() error { return os.Chmod(path, info.Mode()) }, os.Chmod(path, want)
	}
}

// give makes a path another user's.
func give(path, _ string) (undo func() error, err error) {
	return func() error { return os.Lchown(path, 0, 0) }, os.Lchown(path, 54321, 54321)
}

// What somebody else has made of a data directory, or could, is refused before anything of it is used: by a line that
// names the path and says what to do. Nothing is changed.
func TestUnsafeDataDirectory(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--node-name", "node")
	c.pods(t, "default").run(t, sleeper("p"))
	if err := c.end(); err != nil {
		t.Fatal(err)
	}
	all := []arrangement{
		{"a directory that all may write", ".", mode(0o777), true},
		{"a directory above that all may write", "..", mode(0o777), true},
		{"a lock that is a link", "lock", link, true},
		{"a lock that all may write", "lock", mode(0o666), true},
		{"a kubeconfig that is a link", "kubeconfig", link, true},
		{"a kubeconfig that all may read", "kubeconfig", mode(0o644), true},
		{"a key that is a link", "machine-key", link, false},
		{"a key that all may read", "machine-key", mode(0o644), false},
		{"an authority's key that is a link", "pki/ca.key", link, false},
		{"an authority's certificate that is a link", "pki/ca.crt", link, false},
		{"certificates that all may read", "pki", mode(0o755), false},
		{"a token that all may read", "pki/admin.token", mode(0o644), false},
		{"a database that is a link", "etcd/member/snap/db", link, false},
		{"a database that all may write", "etcd/member/snap/db", mode(0o666), false},
		{"a directory of the log that all may write", "etcd/member/wal", mode(0o777), false},
		{"a node that all may write", "nodes/node", mode(0o777), false},
		{"pods that all may write", "nodes/node/pods", mode(0o777), false},
		{"logs that all may write", "nodes/node/logs", mode(0o777), false},
		{"logs that are a link", "nodes/node/logs", link, false},
	}
	if os.Geteuid() == 0 { // only root can give something away
		for _, path := range []string{
			".", "..", "lock", "kubeconfig", "machine-key", "pki", "pki/ca.key", "etcd", "etcd/member/snap/db",
			"nodes", "nodes/node", "nodes/node/pods", "nodes/node/logs",
		} {
			everywhere := path == "." || path == ".." || path == "lock" || path == "kubeconfig"
			all = append(all, arrangement{path + " of another user", path, give, everywhere})
		}
	}
	for _, a := range all {
		t.Run(a.name, func(t *testing.T) {
			away, path := filepath.Join(t.TempDir(), "away"), filepath.Join(c.dir, a.path)
			if err := os.WriteFile(away, []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
			undo, err := a.do(path, away)
			if err != nil {
				t.Fatal(err)
			}
			want := path + " is not safe to use"
			if a.path != "kubeconfig" { // which a start makes anew
				refused(t, monoplane(t, nil, upArgs(c.dir, "--node-name", "node")...), want, "; ")
			}
			if a.all {
				for _, args := range [][]string{{"down"}, {"snapshot", "save", away + ".db"}, {"why", "p"}} {
					refused(t, monoplane(t, nil, append(args, "--data-dir", c.dir)...), want)
				}
			}
			if a.all && a.path != "lock" { // which says nothing about where the kubeconfig is
				refused(t, monoplane(t, nil, "kubeconfig", "--data-dir", c.dir), want)
			}
			if text, err := os.ReadFile(away); err != nil || string(text) != "precious" {
				t.Errorf("what a link leads to holds %q, %v", text, err)
			}
			if err := undo(); err != nil {
				t.Fatal(err)
			}
		})
	}
	startIn(t, c.dir, "--node-name", "node") // as good as before
}
