package datadir

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// UnsafeError says that somebody else has made, or could change, what is in a directory.
type UnsafeError struct {
	// Path is what was looked at.
	Path string
	// Problem says what was found and what was expected; Remedy what to do.
	Problem, Remedy string
}

// Error returns the message, one line.
func (e *UnsafeError) Error() string {
	return fmt.Sprintf("%s is not safe to use: %s; %s", e.Path, e.Problem, e.Remedy)
}

const (
	groupWrites  = 0o020
	othersWrite  = 0o002
	elsewhere    = "use another data directory (--data-dir)"
	lookAndChown = "somebody else may have made what is in it: " + elsewhere +
		", or, if you know all that is in it, chown -R %d %s"
)

// checkDir refuses a directory in which others could put something.
func checkDir(path string, info fs.FileInfo) error {
	if err := checkOwner(path, info); err != nil {
		return err
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return linked(path)
	case !info.IsDir():
		return &UnsafeError{path, "it is " + kind(info) + ", not a directory", "move it away, or " + elsewhere}
	}
	return checkWriters(path, info)
}

// checkFile refuses a file that is not one of the running user's own.
func checkFile(path string, info fs.FileInfo) error {
	if err := checkOwner(path, info); err != nil {
		return err
	}
	switch st, ok := info.Sys().(*syscall.Stat_t); {
	case info.Mode()&fs.ModeSymlink != 0:
		return linked(path)
	case !info.Mode().IsRegular():
		return &UnsafeError{path, "it is " + kind(info) + ", not a regular file", "move it away"}
	case ok && st.Nlink > 1:
		return &UnsafeError{path, fmt.Sprintf(
			"it has %d names (hard links), and what is written here would be written there", st.Nlink),
			"remove the others, or replace it by a copy of itself"}
	}
	return checkWriters(path, info)
}

// checkPrivate refuses what others can read.
func checkPrivate(path string, info fs.FileInfo, want fs.FileMode) error {
	if info.Mode().Perm()&0o077 == 0 {
		return nil
	}
	return &UnsafeError{path, fmt.Sprintf("it holds secrets, and others can use it: its mode is %04o, not %04o",
		info.Mode().Perm(), want),
		fmt.Sprintf("chmod %o %s", want, path)}
}

// checkParent refuses a directory in which others could replace what leads to the data directory at target.
func checkParent(path string, info fs.FileInfo, target string) error {
	if !info.IsDir() {
		return &fs.PathError{Op: "open", Path: path, Err: syscall.ENOTDIR}
	}
	if uid := owner(info); !trusted(uid) {
		return &UnsafeError{path, fmt.Sprintf(
			"it belongs to %s, who could replace %s; it must belong to root or to %s, who runs this",
			userName(uid), target, userName(os.Geteuid())), elsewhere}
	}
	// In a sticky directory nobody can replace what is not theirs.
	if info.Mode()&fs.ModeSticky != 0 || !writable(info) {
		return nil
	}
	return &UnsafeError{path, fmt.Sprintf("its mode is %04o, so that others could replace %s", info.Mode().Perm(),
		target),
		fmt.Sprintf("chmod go-w %s, or %s", path, elsewhere)}
}

// checkLink refuses a symbolic link above the data directory that others could change.
func checkLink(path string, info fs.FileInfo, target string) error {
	if uid := owner(info); !trusted(uid) {
		return &UnsafeError{path, fmt.Sprintf("it is a symbolic link of %s on the way to %s", userName(uid), target),
			elsewhere}
	}
	return nil
}

func checkOwner(path string, info fs.FileInfo) error {
	uid, me := owner(info), os.Geteuid()
	if uid == me {
		return nil
	}
	return &UnsafeError{path, fmt.Sprintf("it belongs to %s, not to %s, who runs this", userName(uid), userName(me)),
		fmt.Sprintf(lookAndChown, me, path)}
}

func checkWriters(path string, info fs.FileInfo) error {
	if !writable(info) {
		return nil
	}
	return &UnsafeError{path, fmt.Sprintf("its mode is %04o, so that others can change it", info.Mode().Perm()),
		fmt.Sprintf("if you know that nobody has, chmod go-w %s, or %s", path, elsewhere)}
}

func linked(path string) error {
	target, err := os.Readlink(path)
	if err != nil {
		target = "somewhere"
	}
	return &UnsafeError{path, fmt.Sprintf("it is a symbolic link (to %s), and links are not followed in a data directory",
		target),
		"remove it, or put what it stands for in its place"}
}

// writable reports whether others than the owner may write. A group of which the running user is the only member is
// nobody else: many systems give every user one and let it write.
func writable(info fs.FileInfo) bool {
	if info.Mode().Perm()&othersWrite != 0 {
		return true
	}
	if info.Mode().Perm()&groupWrites == 0 {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return !ok || !ownGroup(int(st.Gid))
}

// ownGroup reports whether a group is the running user's primary one, bears the user's name and has no other members.
func ownGroup(gid int) bool {
	if gid != os.Getegid() {
		return false
	}
	me, err := user.LookupId(strconv.Itoa(os.Geteuid()))
	if err != nil {
		return false
	}
	group, err := user.LookupGroupId(strconv.Itoa(gid))
	if err != nil || group.Name != me.Username {
		return false
	}
	text, err := os.ReadFile("/etc/group")
	if err != nil {
		return false
	}
	for line := range bytes.Lines(text) {
		f := strings.Split(strings.TrimSpace(string(line)), ":")
		if len(f) == 4 && f[0] == group.Name {
			return f[3] == "" || f[3] == me.Username
		}
	}
	return false
}

// trusted reports whether an owner may hold what leads to a data directory: root, or the running user.
func trusted(uid int) bool {
	return uid == 0 || uid == os.Geteuid() || uid == overflowUID && rootUnmapped()
}

// overflowUID stands for every user that has no number in this user namespace.
const overflowUID = 65534

// rootUnmapped reports whether the machine's root has no number here: in a user namespace, such as that of a rootless
// container, root's directories seem to belong to nobody, and the kernel does not tell them from other users'.
func rootUnmapped() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return false
	}
	for line := range bytes.Lines(text) {
		if f := strings.Fields(string(line)); len(f) == 3 && f[1] == "0" {
			return false
		}
	}
	return true
}

func owner(info fs.FileInfo) int {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return -1
	}
	return int(st.Uid)
}

// userName names a user for a person.
func userName(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return fmt.Sprintf("user %s (%d)", u.Username, uid)
	}
	return fmt.Sprintf("user %d", uid)
}

// kind says what something is that should be something else.
func kind(info fs.FileInfo) string {
	switch m := info.Mode(); {
	case m.IsRegular():
		return "a file"
	case m.IsDir():
		return "a directory"
	case m&fs.ModeNamedPipe != 0:
		return "a pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	default:
		return "a device"
	}
}

// CheckTree checks what is in the directory, down to depth levels below it, or all of it when depth is negative:
// directories and files as if each were opened. Sockets are accepted where they are the user's own. It is for
// directories that are handed on to others, such as a database, which open files by themselves.
func (d *Dir) CheckTree(depth int) error {
	if depth == 0 {
		return nil
	}
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(d.path, e.Name())
		info, err := os.Lstat(path)
		if os.IsNotExist(err) {
			continue // A child that ends may take its files with it.
		}
		if err != nil {
			return err
		}
		switch {
		case info.IsDir():
			if err := checkDir(path, info); err != nil {
				return err
			}
			if err := (&Dir{path}).CheckTree(depth - 1); err != nil {
				return err
			}
		case info.Mode()&fs.ModeSocket != 0:
			if err := checkOwner(path, info); err != nil {
				return err
			}
		default:
			if err := checkFile(path, info); err != nil {
				return err
			}
		}
	}
	return nil
}
