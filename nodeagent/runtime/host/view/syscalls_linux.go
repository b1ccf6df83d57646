package view

import (
	"syscall"
	"unsafe"
)

// The numbers of these calls are the same on all machines that Linux runs on.
const (
	sysOpenTree     = 428
	sysMoveMount    = 429
	sysFsopen       = 430
	sysFsconfig     = 431
	sysFsmount      = 432
	sysOpenat2      = 437
	sysMountSetattr = 442
)

const (
	atNoFollow      = 0x100
	atNoAutomount   = 0x800
	atEmptyPath     = 0x1000
	atRecursive     = 0x8000
	openTreeClone   = 1
	openTreeCloexec = syscall.O_CLOEXEC
	moveFromEmpty   = 0x04
	moveToEmpty     = 0x40
	fsconfigString  = 1
	fsconfigCreate  = 6
	attrReadOnly    = 1
	oPath           = 0x200000
	resolveBeneath  = 0x08
	resolveNoMagic  = 0x02 // Links like those in /proc/PID/fd.
)

// mountAttr is struct mount_attr.
type mountAttr struct{ set, clear, propagation, userNamespace uint64 }

func errno(e syscall.Errno) error {
	if e != 0 {
		return e
	}
	return nil
}

// cloneTree returns a copy of what is mounted at name in dir and below, attached nowhere; at dir itself when name is
// empty. It follows no link.
func cloneTree(dir int, name string) (int, error) {
	path := append([]byte(name), 0)
	tree, _, e := syscall.Syscall(sysOpenTree, uintptr(dir), uintptr(unsafe.Pointer(&path[0])),
		openTreeClone|openTreeCloexec|atEmptyPath|atRecursive|atNoFollow|atNoAutomount)
	return int(tree), errno(e)
}

// openBeneath opens a path for mounting. Nothing on the way is above dir.
func openBeneath(dir int, path string) (int, error) {
	how := struct{ flags, mode, resolve uint64 }{
		flags: oPath | syscall.O_CLOEXEC, resolve: resolveBeneath | resolveNoMagic,
	}
	name := append([]byte(path), 0)
	fd, _, e := syscall.Syscall6(sysOpenat2, uintptr(dir), uintptr(unsafe.Pointer(&name[0])),
		uintptr(unsafe.Pointer(&how)), unsafe.Sizeof(how), 0, 0)
	return int(fd), errno(e)
}

// attach mounts a tree at name in dir, or at dir itself when name is empty.
func attach(tree, dir int, name string) error {
	from, to := []byte{0}, append([]byte(name), 0)
	flags := uintptr(moveFromEmpty)
	if name == "" {
		flags |= moveToEmpty
	}
	_, _, e := syscall.Syscall6(sysMoveMount, uintptr(tree), uintptr(unsafe.Pointer(&from[0])), uintptr(dir),
		uintptr(unsafe.Pointer(&to[0])), flags, 0)
	return errno(e)
}

// setAttr changes the mount at fd, and with recursive those below.
func setAttr(fd int, attr mountAttr, recursive bool) error {
	name := []byte{0}
	flags := uintptr(atEmptyPath)
	if recursive {
		flags |= atRecursive
	}
	_, _, e := syscall.Syscall6(sysMountSetattr, uintptr(fd), uintptr(unsafe.Pointer(&name[0])), flags,
		uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	return errno(e)
}

// newTmpfs makes a tmpfs that is mounted nowhere yet.
func newTmpfs(options ...[2]string) (int, error) {
	kind := []byte("tmpfs\x00")
	fs, _, e := syscall.Syscall(sysFsopen, uintptr(unsafe.Pointer(&kind[0])), 1 /* FSOPEN_CLOEXEC */, 0)
	if e != 0 {
		return -1, e
	}
	defer syscall.Close(int(fs))
	for _, o := range options {
		key, value := append([]byte(o[0]), 0), append([]byte(o[1]), 0)
		if _, _, e := syscall.Syscall6(sysFsconfig, fs, fsconfigString, uintptr(unsafe.Pointer(&key[0])),
			uintptr(unsafe.Pointer(&value[0])), 0, 0); e != 0 {
			return -1, e
		}
	}
	if _, _, e := syscall.Syscall6(sysFsconfig, fs, fsconfigCreate, 0, 0, 0, 0); e != 0 {
		return -1, e
	}
	mnt, _, e := syscall.Syscall(sysFsmount, fs, 1 /* FSMOUNT_CLOEXEC */, 0)
	return int(mnt), errno(e)
}

// readlink reads the symbolic link that is name in dir, or dir itself when name is empty.
func readlink(dir int, name string) (string, error) {
	path, buf := append([]byte(name), 0), make([]byte, 4096)
	n, _, e := syscall.Syscall6(syscall.SYS_READLINKAT, uintptr(dir), uintptr(unsafe.Pointer(&path[0])),
		uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), 0, 0)
	if e != 0 {
		return "", e
	}
	return string(buf[:n]), nil
}

func symlink(target string, dir int, name string) error {
	t, n := append([]byte(target), 0), append([]byte(name), 0)
	_, _, e := syscall.Syscall(syscall.SYS_SYMLINKAT, uintptr(unsafe.Pointer(&t[0])), uintptr(dir),
		uintptr(unsafe.Pointer(&n[0])))
	return errno(e)
}
