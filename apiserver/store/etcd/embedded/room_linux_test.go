package embedded

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"monoplane.dev/apiserver/store/etcd"
)

// Before a write begins on a file system that is read-only, that is noticed.
func TestReadOnlyDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a file system")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=24m,mode=0700"); err != nil {
		t.Skip("cannot mount: ", err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	d := disk{dir: dir, database: dir + "/db"}
	if err := os.WriteFile(d.database, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.check(0); err != nil {
		t.Error(err)
	}
	readOnly := uintptr(syscall.MS_REMOUNT | syscall.MS_RDONLY)
	if err := syscall.Mount("tmpfs", dir, "tmpfs", readOnly, "size=24m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	if err := d.check(0); !errors.Is(err, etcd.ErrDisk) || !strings.Contains(err.Error(), "read-only file system") {
		t.Errorf("on a read-only file system: %v", err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=24m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	if err := d.check(0); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
