package unpack

import (
	"archive/tar"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// permissions are the bits of a mode that an archive may set.
const permissions = 0o7777

func attributesOf(h *tar.Header) attributes {
	const prefix = "SCHILY.xattr."
	a := attributes{mode: uint32(h.Mode) & permissions, uid: h.Uid, gid: h.Gid, mtime: h.ModTime}
	for key, value := range h.PAXRecords {
		if name, ok := strings.CutPrefix(key, prefix); ok && allowed(name) {
			if a.xattrs == nil {
				a.xattrs = make(map[string]string)
			}
			a.xattrs[name] = value
		}
	}
	return a
}

// allowed reports whether an archive may set an extended attribute: those of overlayfs would make it look elsewhere,
// and labels of security modules are of another machine.
func allowed(name string) bool {
	switch {
	case strings.HasPrefix(name, "user.overlay."):
		return false
	case name == "security.capability", strings.HasPrefix(name, "user."), strings.HasPrefix(name, "system.posix_acl_"):
		return true
	}
	return false
}

// owner is the id that a file gets for the one that the archive names.
func (u *unpacker) owner(id int, ranges []IDRange) int {
	switch {
	case len(ranges) == 0:
		return id
	case id < 0 || id > math.MaxUint32:
		id = nobody
	}
	return shifted(uint32(id), ranges)
}

// setFile gives an open file its attributes. The owner first: changing it takes away capabilities and setuid. The mode
// last: a user may not give an extended attribute to a file that its mode makes read-only, nor look into a directory
// that it closes.
func (u *unpacker) setFile(fd int, at handle, base string, a attributes) error {
	if u.Owners {
		if err := unix.Fchown(fd, u.owner(a.uid, u.Shift.UIDs), u.owner(a.gid, u.Shift.GIDs)); err != nil {
			return err
		}
	}
	for name, value := range a.xattrs {
		if err := unix.Fsetxattr(fd, name, []byte(value), 0); err != nil && !u.lost(err) {
			return fmt.Errorf("extended attribute %q of %d bytes: %w", short(name), len(value), err)
		}
	}
	if err := u.setTime(at, base, a); err != nil {
		return err
	}
	return unix.Fchmod(fd, a.mode)
}

// setOther gives a link, device or pipe its attributes.
func (u *unpacker) setOther(at handle, base string, a attributes) error {
	if u.Owners {
		uid, gid := u.owner(a.uid, u.Shift.UIDs), u.owner(a.gid, u.Shift.GIDs)
		if err := unix.Fchownat(at.fd, base, uid, gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
	}
	var s unix.Stat_t
	if err := unix.Fstatat(at.fd, base, &s, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if s.Mode&unix.S_IFMT != unix.S_IFLNK { // which nobody could have put a link in place of
		if err := unix.Fchmodat(at.fd, base, a.mode, 0); err != nil {
			return err
		}
	}
	return u.setTime(at, base, a)
}

func (u *unpacker) setTime(at handle, base string, a attributes) error {
	if a.mtime.IsZero() {
		return nil
	}
	t := timespec(a.mtime)
	err := unix.UtimesNanoAt(at.fd, base, []unix.Timespec{t, t}, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ERANGE) {
		return nil // a time that this file system cannot hold
	}
	return err
}

func timespec(t time.Time) unix.Timespec {
	s, err := unix.TimeToTimespec(t)
	if err != nil {
		return unix.Timespec{}
	}
	return s
}

// lost reports whether an attribute cannot be set because of the file system, or for want of rights.
func (u *unpacker) lost(err error) bool {
	return errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EPERM) && !u.Owners
}

// finish gives the directories their attributes, those further down first. One without an entry gets the usual ones.
func (u *unpacker) finish() error {
	usual := attributes{mode: 0o755}
	if _, ok := u.dirs[""]; !ok {
		u.dirs[""] = usual
	}
	for p := range u.tree.implied {
		u.dirs[p] = usual
	}
	paths := make([]string, 0, len(u.dirs))
	for p := range u.dirs {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	for _, p := range slices.Backward(paths) {
		if err := u.ctx.Err(); err != nil {
			return err
		}
		if err := u.setDir(p, u.dirs[p]); err != nil {
			return err
		}
	}
	return nil
}

func (u *unpacker) setDir(p string, a attributes) error {
	u.tree.trim()
	at, err := u.tree.find(p)
	if err != nil {
		return err
	}
	if p == "" {
		return u.setFile(at.fd, at, ".", a)
	}
	up, err := u.tree.find(parentOf(p))
	if err != nil {
		return err
	}
	return u.setFile(at.fd, up, path.Base(p), a)
}
