// Package ownership gives a volume to the group that a pod names as its fsGroup, with the permissions that Kubernetes
// gives: the group may read, and write unless the volume is read-only; directories hand the group on to what is made
// in them.
//
// Containers may change the volume meanwhile. Whatever they swap for a link, nothing outside the volume is touched.
package ownership

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// OnRootMismatch is the policy by which a volume whose top directory is right is left as it is.
const OnRootMismatch = "OnRootMismatch"

// ErrNoGroup is that of a group to which nothing can be given, where pods have one group only.
var ErrNoGroup = errors.New("the group does not exist in pods")

const (
	readWrite = 0o660
	readOnly  = 0o440
	enter     = 0o110
)

// Give gives all that lies below dir, and last dir itself, to group: that it was interrupted is seen at the top
// directory. It follows no links and enters no other file system.
func Give(dir string, group int64, forReading bool, policy string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	top, err := root.Lstat(".")
	if err != nil || policy == OnRootMismatch && matches(top, group, forReading) {
		return err
	}
	w := walk{root: root, device: deviceOf(top), group: int(group), forReading: forReading}
	return w.give(".", top)
}

type walk struct {
	root       *os.Root
	device     uint64
	group      int
	forReading bool
}

func (w walk) give(path string, info fs.FileInfo) error {
	if deviceOf(info) != w.device {
		return nil
	}
	if info.IsDir() {
		if err := w.giveBelow(path); err != nil {
			return gone(err)
		}
	}
	err := w.root.Lchown(path, -1, w.group)
	if err == nil && info.Mode()&fs.ModeSymlink == 0 {
		err = w.root.Chmod(path, info.Mode()|bits(info.IsDir(), w.forReading))
	}
	return gone(err)
}

func (w walk) giveBelow(path string) error {
	dir, err := w.root.Open(path)
	if err != nil {
		return err
	}
	names, err := dir.Readdirnames(-1)
	dir.Close()
	if err != nil {
		return err
	}
	for _, name := range names {
		below := filepath.Join(path, name)
		info, err := w.root.Lstat(below)
		if err == nil {
			err = w.give(below, info)
		}
		if gone(err) != nil {
			return err
		}
	}
	return nil
}

// gone drops the error about a file that its owner has removed meanwhile.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// bits returns the permissions that the group gets.
func bits(dir, forReading bool) fs.FileMode {
	mode := fs.FileMode(readWrite)
	if forReading {
		mode = readOnly
	}
	if dir {
		mode |= enter | fs.ModeSetgid
	}
	return mode
}

// matches reports whether the top directory is already as Give would make it.
func matches(top fs.FileInfo, group int64, forReading bool) bool {
	stat, ok := top.Sys().(*syscall.Stat_t)
	want := bits(true, forReading)
	return ok && int64(stat.Gid) == group && top.Mode()&want == want
}

func deviceOf(info fs.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(stat.Dev) //nolint:unconvert // it is not of this type on every system
	}
	return 0
}
