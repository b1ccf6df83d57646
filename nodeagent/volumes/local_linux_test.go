package volumes_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monoplane.dev/apierrors"
	"monoplane.dev/nodeagent/volumes"
)

const madeForClaim = "pvc-01234567-89ab-cdef-0123-456789abcdef"

// A volume that the server made is removed from the node's own directory, with all in it, and nothing else is:
// whatever the name, whatever is there, and not while a pod has it.
func TestRemoveLocal(t *testing.T) {
	n := newNode(t)
	base := t.TempDir()
	own, kept := filepath.Join(base, "own"), filepath.Join(base, "kept")
	cfg := volumes.Config{Dir: n.dir, LocalDir: own, Objects: n, Claims: n}
	m := volumes.New(cfg)
	n.Manager = m
	if err := m.RemoveLocal(t.Context(), madeForClaim); err != nil {
		t.Errorf("there is no directory of volumes yet: %v", err)
	}
	write := func(dir string) {
		t.Helper()
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "precious"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(kept)
	write(filepath.Join(own, "named"))
	write(filepath.Join(base, madeForClaim))
	path := filepath.Join(own, madeForClaim)
	write(path)
	if err := os.Symlink(kept, filepath.Join(path, "link")); err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"", ".", "..", "named", "../kept", "/", kept, madeForClaim + "/..", "pvc-..",
		"../" + madeForClaim, madeForClaim + "/precious", "pvc-" + strings.Repeat(".", 36), madeForClaim + "\n"} {
		if err := m.RemoveLocal(t.Context(), name); err == nil {
			t.Errorf("%q is removed", name)
		}
	}
	// The directory of volumes may have moved since the volume was made.
	c, v := n.bind(local("/where/it/was/" + madeForClaim))
	c.Spec.VolumeName, v.Metadata.Name = madeForClaim, madeForClaim
	n.pvs[madeForClaim] = v
	v.Metadata.Annotations = map[string]string{
		"pv.kubernetes.io/provisioned-by": "monoplane.dev/local", "monoplane.dev/node": "n",
	}
	p := pod(claim("v"))
	n.setUp(p)
	if got := n.given(p)["/v"]; got != path {
		t.Errorf("it is mounted from %s, want %s", got, path)
	}
	if err := m.RemoveLocal(t.Context(), madeForClaim); !apierrors.Is(err, apierrors.Conflict) ||
		!strings.Contains(err.Error(), "uid-a") {
		t.Errorf("while a pod has it: %v", err)
	}
	if _, err := os.Stat(filepath.Join(path, "precious")); err != nil {
		t.Error(err)
	}
	n.tearDown(p)
	for range 2 {
		if err := m.RemoveLocal(t.Context(), madeForClaim); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the directory is there: %v", err)
	}
	// The directory itself may be a link that somebody has put there: what it leads to is another's.
	if err := os.Symlink(kept, path); err != nil {
		t.Fatal(err)
	}
	if err := m.RemoveLocal(t.Context(), madeForClaim); err != nil {
		t.Error(err)
	}
	for _, dir := range []string{kept, filepath.Join(own, "named"), filepath.Join(base, madeForClaim)} {
		if _, err := os.Stat(filepath.Join(dir, "precious")); err != nil {
			t.Error(err)
		}
	}
	if err := volumes.New(volumes.Config{Dir: n.dir}).RemoveLocal(t.Context(), madeForClaim); err == nil {
		t.Error("a node without such a directory removes something")
	}
}

// What users of containers have closed to the agent is removed for it, and only the volume's own directory.
func TestRemoveLocalOfOthers(t *testing.T) {
	var asked []string
	own := t.TempDir()
	m := volumes.New(volumes.Config{Dir: t.TempDir(), LocalDir: own, Remove: func(_ context.Context, dir string) error {
		asked = append(asked, dir)
		return nil
	}})
	closed := filepath.Join(own, madeForClaim, "closed")
	if err := os.MkdirAll(filepath.Join(closed, "in"), 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		t.Skip("nothing is closed to root")
	}
	if err := os.Chmod(closed, 0); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(closed, fs.ModePerm) //nolint:errcheck // for the test's own cleaning
	if err := m.RemoveLocal(t.Context(), madeForClaim); err != nil || len(asked) != 1 ||
		asked[0] != filepath.Join(own, madeForClaim) {
		t.Errorf("asked to remove %q, %v", asked, err)
	}
}
