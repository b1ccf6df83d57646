//go:build rootonly

package images_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"monoplane.dev/nodeagent/images"
	"monoplane.dev/nodeagent/quota/test/quotatest"
)

// On a disk with quotas a container with a limit cannot write much more than that, in its root and volumes together,
// while all that overlayfs does there works as ever. None of the limit is left when the container is gone, or when the
// process that made its root died meanwhile.
//
// spec: QOS-2
func TestRootContainersAreBounded(t *testing.T) {
	const mib = 1 << 20
	disk := t.TempDir()
	quotatest.Mount(t, disk, "prjquota")
	host, s := serve(t), openIn(t, filepath.Join(disk, "images"))
	ref := host + "/app:v1"
	push(t, ref, plainImage(t))
	pull(t, s, ref)
	expect := func(when string, want ...int64) {
		t.Helper()
		all := quotatest.Limits(t, disk)
		delete(all, 0) // Of what is in no project.
		if got := slices.Sorted(maps.Values(all)); !slices.Equal(got, want) {
			t.Errorf("limits %s: %v, want %v", when, got, want)
		}
	}
	make := func() images.Root {
		t.Helper()
		root, err := s.Mountable(t.Context(), images.RootRequest{ID: "c", Image: ref, Volumes: 1, Most: mib})
		if err != nil {
			t.Fatal(err)
		}
		return root
	}

	root := make()
	expect("of a container", 17*mib)
	root.Made = time.Time{} // As if this process had died just before.
	text, err := json.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root.Dir, "root.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	root = make()
	expect("of one that was made again", 17*mib)
	if again := make(); again.Project != root.Project {
		t.Errorf("asked again, it has project %d instead of %d", again.Project, root.Project)
	}

	overlay(t, root, func(dir string) {
		for _, path := range []string{"etc/a", "top"} { // They are copied up.
			if err := os.WriteFile(filepath.Join(dir, path), []byte("changed"), 0o600); err != nil {
				t.Error(err)
			}
		}
		if err := os.Rename(filepath.Join(dir, "top"), filepath.Join(dir, "etc/top")); err != nil {
			t.Error(err)
		}
		for _, path := range []string{filepath.Join(dir, "f"), filepath.Join(root.Volumes[0], "f")} {
			fill(t, path)
		}
	})
	if u, err := s.RootUsage(t.Context(), "c"); err != nil || u.Bytes < 15*mib || u.Bytes > 17*mib {
		t.Errorf("it has stored %+v, %v", u, err)
	}
	if err := s.Release(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	expect("afterwards")
}

// fill writes to a file, as a process that has no rights, until the quota lets it write no more.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	var said strings.Builder
	cmd := exec.Command("head", "-c", "40M", "/dev/zero")
	cmd.Stdout, cmd.Stderr = f, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if err := cmd.Run(); err == nil || !strings.Contains(said.String(), "Disk quota exceeded") {
		t.Errorf("writing 40 MiB: %v, %q", err, said.String())
	}
}
