//go:build rootonly

package quota_test

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"monoplane.dev/nodeagent/diskuse"
	"monoplane.dev/nodeagent/quota"
	"monoplane.dev/nodeagent/quota/test/quotatest"
)

const mib = 1 << 20

// A directory holds no more than its limit, whoever writes at whatever depth, deleted files that are open included.
// What is beside it has room. After it nothing is left of it.
func TestRootLimit(t *testing.T) {
	disk := t.TempDir()
	quotatest.Mount(t, disk, "prjquota")
	before := quotatest.Limits(t, disk)
	dir, deep, beside := filepath.Join(disk, "a"), filepath.Join(disk, "a/b/c"), filepath.Join(disk, "z")
	mkdir(t, dir)
	p := project(t, dir)
	if again := project(t, dir); again != p {
		t.Errorf("the project is %d, and then %d", p, again)
	}
	mkdir(t, deep)
	mkdir(t, beside)
	if other := project(t, beside); other == p {
		t.Errorf("two directories have the project %d", p)
	}
	if err := p.Limit(disk, 20*mib); err != nil {
		t.Fatal(err)
	}
	if got := quotatest.Limits(t, disk)[uint32(p)]; got != 20*mib {
		t.Errorf("the limit is %d", got)
	}

	file := write(t, filepath.Join(deep, "f"), 40, "Disk quota exceeded")
	used := expect(t, disk, p, 19*mib, 20*mib)
	walked, err := diskuse.Of(t.Context(), dir)
	if err != nil || walked != used {
		t.Errorf("the quota says %+v, and the files take %+v, %v", used, walked, err)
	}
	write(t, filepath.Join(beside, "f"), 40, "").Close()
	if err := os.Remove(file.Name()); err != nil {
		t.Fatal(err)
	}
	expect(t, disk, p, 19*mib, 20*mib)
	file.Close()
	expect(t, disk, p, 0, mib)

	if err := p.Limit(disk, 0); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "f"), 40, "").Close()
	if err := errors.Join(os.RemoveAll(dir), os.RemoveAll(beside)); err != nil {
		t.Fatal(err)
	}
	if after := quotatest.Limits(t, disk); !maps.Equal(before, after) {
		t.Errorf("projects before: %v, after: %v", before, after)
	}
}

// A directory that is in the project of an administrator, or of a directory around it, stays there.
func TestRootOthersProjects(t *testing.T) {
	disk := t.TempDir()
	quotatest.Mount(t, disk, "prjquota")
	theirs, ours := filepath.Join(disk, "theirs"), filepath.Join(disk, "ours")
	mkdir(t, theirs)
	mkdir(t, ours)
	if out, err := exec.Command("chattr", "+P", "-p", "42", theirs).CombinedOutput(); err != nil {
		t.Fatalf("chattr: %v\n%s", err, out)
	}
	project(t, ours)
	for _, dir := range []string{theirs, filepath.Join(theirs, "a"), filepath.Join(ours, "a")} {
		mkdir(t, dir)
		if p, err := quota.New(dir); p != 0 || !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %d, %v", dir, p, err)
		}
	}
}

// A file system that counts but does not enforce has no quotas.
func TestRootUnenforced(t *testing.T) {
	disk := t.TempDir()
	quotatest.Mount(t, disk, "noquota")
	if p, err := quota.New(disk); p != 0 || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%d, %v", p, err)
	}
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
}

func project(t *testing.T, dir string) quota.Project {
	t.Helper()
	p, err := quota.New(dir)
	if err != nil || p == 0 {
		t.Fatalf("%s: project %d, %v", dir, p, err)
	}
	return p
}

// write writes so many MiB to a new file, as a process that has no rights; fails is what it says in the end.
func write(t *testing.T, path string, mibs int, fails string) *os.File {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	var said strings.Builder
	cmd := exec.Command("head", "-c", strconv.Itoa(mibs)+"M", "/dev/zero")
	cmd.Stdout, cmd.Stderr = f, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if err := cmd.Run(); (err != nil) != (fails != "") || !strings.Contains(said.String(), fails) {
		t.Errorf("writing %d MiB: %v, %q; want %q", mibs, err, said.String(), fails)
	}
	return f
}

func expect(t *testing.T, disk string, p quota.Project, least, most int64) diskuse.Size {
	t.Helper()
	used := quotatest.Used(t, disk, uint32(p))
	if used.Bytes < least || used.Bytes > most {
		t.Errorf("used: %+v; want %d to %d bytes", used, least, most)
	}
	return used
}
