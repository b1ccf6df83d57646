// Package quotatest makes file systems with project quotas for tests, and says what limits there are.
package quotatest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/diskuse"
)

// Mount mounts a new ext4 file system of 768 MiB, which counts by projects, in a directory until the test ends. With
// the option prjquota it enforces limits, too. It skips the test where the kernel refuses.
func Mount(t *testing.T, dir, options string) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 768<<20); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", "-O", "quota,project", image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v\n%s", err, out)
	}
	if out, err := exec.Command("mount", "-o", "loop,"+options, image, dir).CombinedOutput(); err != nil {
		t.Skipf("no file system with quotas can be mounted here: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(errors.Join(err, unix.Unmount(dir, unix.MNT_DETACH)))
		}
	})
}

// Limits returns the limits in bytes, 0 for none, of all projects that have one, or files, on the file system of a
// directory, by id. Of others the kernel may have something written a while longer.
func Limits(t *testing.T, dir string) map[uint32]int64 {
	t.Helper()
	out := make(map[uint32]int64)
	for _, has := range records(t, dir) {
		if has.hard > 0 || has.inodes > 0 {
			out[has.id] = int64(has.hard) * 1024
		}
	}
	return out
}

// Used returns what the files of a project take on the file system of a directory, also deleted ones that are open.
func Used(t *testing.T, dir string, project uint32) diskuse.Size {
	t.Helper()
	for _, has := range records(t, dir) {
		if has.id == project {
			return diskuse.Size{Bytes: int64(has.space), Inodes: int64(has.inodes)}
		}
	}
	return diskuse.Size{}
}

// record is struct if_nextdqblk.
type record struct {
	hard, _, space uint64
	_, _, inodes   uint64
	_              [2]uint64
	_              uint32
	id             uint32
}

func records(t *testing.T, dir string) []record {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const nextQuota, projects = 0x800009, 2
	var out []record
	for next := uint32(0); ; next++ {
		var has record
		_, _, e := unix.Syscall6(unix.SYS_QUOTACTL_FD, f.Fd(), nextQuota<<8|projects, uintptr(next),
			uintptr(unsafe.Pointer(&has)), 0, 0)
		if e == unix.ENOENT {
			return out
		}
		if e != 0 {
			t.Fatalf("the limits of %s: %v", dir, e)
		}
		next = has.id
		out = append(out, has)
	}
}
