package unpack

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Merge copies layers, the lowest first, on top of each other to the new directory dst: what overlayfs would show of
// them. Where the file system can, the copies share their blocks with the layers. The caller removes what there is
// after an error.
func Merge(ctx context.Context, dst string, layers []string, o MergeOptions) error {
	if err := os.Mkdir(dst, 0o755); err != nil {
		return err
	}
	m := merger{MergeOptions: o, ctx: ctx}
	for _, dir := range layers {
		m.links = make(map[uint64]string)
		if err := m.dir(dir, dst); err != nil {
			return err
		}
	}
	return m.finish()
}

type merger struct {
	MergeOptions
	ctx context.Context
	// links are the copies of the layer's files that have several names, by inode.
	links map[uint64]string
	// dirs are the directories, each with the one whose attributes it gets, in the order in which they were made.
	dirs      []pair
	unchecked int64
}

type pair struct{ dst, src string }

// dir merges what is in a directory of a layer into one of the copy, which is there.
func (m *merger) dir(src, dst string) error {
	if err := m.ctx.Err(); err != nil {
		return err
	}
	m.dirs = append(m.dirs, pair{dst, src})
	// A directory that is closed to its owner can be read by nobody but root.
	entries, err := os.ReadDir(src)
	if errors.Is(err, fs.ErrPermission) {
		return m.closed(src, dst)
	}
	if err != nil {
		return err
	}
	if m.isOpaque(src) {
		if err := empty(dst); err != nil {
			return err
		}
	}
	for _, e := range entries {
		if err := m.entry(src, dst, e.Name()); err != nil {
			return err
		}
	}
	return nil
}

// closed merges a directory that its owner may not read: for the moment of reading it may.
func (m *merger) closed(src, dst string) error {
	info, err := os.Lstat(src)
	if err != nil {
		return err
	}
	if err := os.Chmod(src, 0o700); err != nil {
		return err
	}
	m.dirs = m.dirs[:len(m.dirs)-1]
	err = m.dir(src, dst)
	return errors.Join(err, os.Chmod(src, info.Mode()))
}

func (m *merger) isOpaque(src string) bool {
	if m.Flavour == Plain {
		return exists(filepath.Join(src, Opaque))
	}
	var b [1]byte
	n, err := unix.Lgetxattr(src, m.Flavour.Attribute("opaque"), b[:])
	return err == nil && n == 1 && b[0] == 'y'
}

func exists(path string) bool {
	var s unix.Stat_t
	return unix.Lstat(path, &s) == nil
}

// empty removes what is in a directory.
func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (m *merger) entry(srcDir, dstDir, name string) error {
	src, dst := filepath.Join(srcDir, name), filepath.Join(dstDir, name)
	var s unix.Stat_t
	if err := unix.Lstat(src, &s); err != nil {
		return &fs.PathError{Op: "lstat", Path: src, Err: err}
	}
	if hidden, ok := strings.CutPrefix(name, Whiteout); ok && m.Flavour == Plain {
		return m.hide(srcDir, dstDir, hidden)
	}
	if s.Mode&unix.S_IFMT == unix.S_IFDIR {
		return m.subdir(src, dst)
	}
	if err := RemoveAll(dst); err != nil {
		return err
	}
	if isWhiteout(&s) && m.Flavour != Plain {
		return nil
	}
	if s.Nlink > 1 {
		if first, ok := m.links[s.Ino]; ok {
			return os.Link(first, dst)
		}
		m.links[s.Ino] = dst
	}
	if err := m.copy(src, dst, &s); err != nil {
		return &fs.PathError{Op: "copy", Path: src, Err: err}
	}
	return m.attributes(src, dst, &s)
}

// hide removes what a marker of the archive names, unless this layer has it again.
func (m *merger) hide(srcDir, dstDir, hidden string) error {
	if strings.HasPrefix(hidden, Whiteout) || hidden == "" || hidden == "." || hidden == ".." {
		return nil
	}
	if info, err := os.Lstat(filepath.Join(srcDir, hidden)); err == nil && !info.IsDir() {
		return nil
	}
	return RemoveAll(filepath.Join(dstDir, hidden))
}

func (m *merger) subdir(src, dst string) error {
	if m.Flavour == Plain { // the marker may come after the directory
		if exists(marker(src)) {
			if err := RemoveAll(dst); err != nil {
				return err
			}
		}
	}
	switch info, err := os.Lstat(dst); {
	case err == nil && info.IsDir():
		return m.dir(src, dst)
	case err == nil:
		if err := os.Remove(dst); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dst, 0o700); err != nil {
		return err
	}
	return m.dir(src, dst)
}

// marker is the entry that says that what is at a path was removed.
func marker(p string) string { return filepath.Join(filepath.Dir(p), Whiteout+filepath.Base(p)) }

func (m *merger) copy(src, dst string, s *unix.Stat_t) error {
	switch s.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return m.file(src, dst, s.Size)
	case unix.S_IFLNK:
		target, err := os.Readlink(src)
		if err != nil {
			return err
		}
		return os.Symlink(target, dst)
	default:
		return unix.Mknod(dst, s.Mode&unix.S_IFMT|0o600, int(s.Rdev))
	}
}

func (m *merger) file(src, dst string, size int64) error {
	from, err := os.OpenFile(src, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrPermission) { // closed to its owner, as directories can be
		if from, err = openClosed(src); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if m.unchecked += size; m.unchecked >= roomEvery {
		err, m.unchecked = errors.Join(m.ctx.Err(), room(int(to.Fd()), m.Reserve+size)), 0
	}
	if err == nil && unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) != nil {
		_, err = io.Copy(to, from)
	}
	return errors.Join(err, to.Close())
}

func openClosed(src string) (*os.File, error) {
	info, err := os.Lstat(src)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(src, 0o600); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(src, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	return f, errors.Join(err, os.Chmod(src, info.Mode()))
}

// attributes gives a copy what its original has, in the order of setFile.
func (m *merger) attributes(src, dst string, s *unix.Stat_t) error {
	if m.Owners {
		if err := os.Lchown(dst, shifted(s.Uid, m.Shift.UIDs), shifted(s.Gid, m.Shift.GIDs)); err != nil {
			return err
		}
	}
	if err := m.xattrs(src, dst); err != nil {
		return err
	}
	if s.Mode&unix.S_IFMT != unix.S_IFLNK {
		if err := unix.Chmod(dst, s.Mode&permissions); err != nil {
			return &fs.PathError{Op: "chmod", Path: dst, Err: err}
		}
	}
	times := []unix.Timespec{s.Atim, s.Mtim}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, dst, times, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "utimensat", Path: dst, Err: err}
	}
	return nil
}

func (m *merger) xattrs(src, dst string) error {
	const mostNames, mostValue = 64 << 10, 64 << 10
	buf := make([]byte, 256)
	n, err := unix.Llistxattr(src, buf)
	if errors.Is(err, unix.ERANGE) {
		buf = make([]byte, mostNames)
		n, err = unix.Llistxattr(src, buf)
	}
	if err != nil || n == 0 {
		return nil // a file system without them
	}
	value := make([]byte, mostValue)
	for name := range strings.SplitSeq(strings.TrimRight(string(buf[:n]), "\x00"), "\x00") {
		if !allowed(name) {
			continue
		}
		n, err := unix.Lgetxattr(src, name, value)
		if err == nil {
			err = unix.Lsetxattr(dst, name, value[:n], 0)
		}
		if err != nil && !errors.Is(err, unix.ENOTSUP) && !errors.Is(err, fs.ErrPermission) {
			return &fs.PathError{Op: "setxattr " + name, Path: dst, Err: err}
		}
	}
	return nil
}

// finish gives the directories their attributes, the last ones first: those further down before those above. The
// uppermost layer's count. What an upper layer has put a link in place of is not looked for behind the link.
func (m *merger) finish() error {
	last := make(map[string]string, len(m.dirs))
	var paths []string // of those that are there, each after the one that it is in
	there := make(map[string]bool)
	for _, d := range m.dirs {
		if _, again := last[d.dst]; !again {
			if parent := filepath.Dir(d.dst); len(paths) == 0 || there[parent] {
				info, err := os.Lstat(d.dst)
				there[d.dst] = err == nil && info.IsDir()
			}
			if there[d.dst] {
				paths = append(paths, d.dst)
			}
		}
		last[d.dst] = d.src
	}
	for _, dst := range slices.Backward(paths) {
		var s unix.Stat_t
		if err := unix.Lstat(last[dst], &s); err != nil {
			return &fs.PathError{Op: "lstat", Path: last[dst], Err: err}
		}
		if err := m.attributes(last[dst], dst, &s); err != nil {
			return err
		}
	}
	return nil
}

// Upper makes the upper directory of overlayfs above a layer, with the owner and mode that the layer's directory has.
func Upper(dir, layer string, shift Shift) error {
	var s unix.Stat_t
	if err := unix.Lstat(layer, &s); err != nil {
		return &fs.PathError{Op: "lstat", Path: layer, Err: err}
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		if err := os.Lchown(dir, shifted(s.Uid, shift.UIDs), shifted(s.Gid, shift.GIDs)); err != nil {
			return err
		}
	}
	return unix.Chmod(dir, s.Mode&permissions)
}

// IsOwn tells whether a directory belongs to the user and the group of this process.
func IsOwn(dir string) bool {
	var s unix.Stat_t
	return unix.Lstat(dir, &s) == nil && int(s.Uid) == os.Geteuid() && int(s.Gid) == os.Getegid()
}
