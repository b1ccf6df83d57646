package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestRootDoctorSeesDisks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a file system")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=24m,mode=0700"); err != nil {
		t.Skip("cannot mount: ", err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	for _, name := range []string{"etcd", "nodes"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	d := &doctor{}
	d.disks(dir)
	d.wantsNothing(t)
	full := filepath.Join(dir, "full")
	if err := os.WriteFile(full, make([]byte, 20<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	d.disks(dir)
	d.wants(t, "the disk of the store is full", "etcd needs 8", "free some of it")
	more, err := os.Create(filepath.Join(dir, "more"))
	if err != nil {
		t.Fatal(err)
	}
	defer more.Close()
	_, _ = more.Write(make([]byte, 8<<20)) // more than there is
	d.disks(dir)
	if len(d.found) != 2 || d.found[1].what != "the disk of the agent of the node is full: no room is left" {
		t.Error(d.found)
	}
	d.found = nil
	if err := more.Close(); err != nil {
		t.Fatal(err)
	}
	readOnly := uintptr(syscall.MS_REMOUNT | syscall.MS_RDONLY)
	if err := syscall.Mount("tmpfs", dir, "tmpfs", readOnly, "size=24m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	d.disks(dir)
	if len(d.found) != 2 || d.found[0].what != "the disk of the store is read-only" ||
		d.found[1].what != "the disk of the agent of the node is read-only" {
		t.Error(d.found)
	}
}
