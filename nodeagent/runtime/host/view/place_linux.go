package view

import (
	"errors"
	"os"
	"strconv"
	"syscall"

	"monoplane.dev/nodeagent/runtime/host/sys"
)

const (
	// maxLinks is how many symbolic links a path may lead through, as in the kernel.
	maxLinks = 40
	// maxEntries bounds how many entries of a directory are mounted again to make room for one more.
	maxEntries = 4096
	// shadowSize bounds what a container can put in memory by writing next to a path that was made for it.
	shadowSize = "64m"
)

// path is how far a path exists: descriptors from the root to the last component that does, and the names that are
// missing.
type path struct {
	fds     []int
	missing []string
}

func (p *path) last() int { return p.fds[len(p.fds)-1] }

func (p *path) close() {
	for _, fd := range p.fds {
		syscall.Close(fd)
	}
}

// walk follows a path as a process in the view would.
func walk(name string) (*path, error) {
	root, err := openDir("/")
	if err != nil {
		return nil, err
	}
	p := &path{fds: []int{root}}
	todo := sys.Split(name, '/')
	for links := 0; len(todo) > 0; {
		c := todo[0]
		todo = todo[1:]
		switch {
		case c == "" || c == ".":
		case c == ".." && len(p.missing) > 0:
			p.missing = p.missing[:len(p.missing)-1]
		case c == "..":
			if len(p.fds) > 1 {
				syscall.Close(p.last())
				p.fds = p.fds[:len(p.fds)-1]
			}
		case len(p.missing) > 0:
			p.missing = append(p.missing, c)
		default:
			target, err := p.step(c)
			if err != nil {
				p.close()
				return nil, errors.New(strconv.Quote(c) + " in the path cannot be followed: " + err.Error())
			}
			if target == "" {
				continue
			}
			if links++; links > maxLinks {
				p.close()
				return nil, errors.New("the path leads through too many symbolic links")
			}
			if target[0] == '/' {
				for _, fd := range p.fds[1:] {
					syscall.Close(fd)
				}
				p.fds = p.fds[:1]
			}
			todo = append(sys.Split(target, '/'), todo...)
		}
	}
	return p, nil
}

// step goes on to c. It returns where that leads if it is a symbolic link.
func (p *path) step(c string) (target string, err error) {
	fd, err := syscall.Openat(p.last(), c, oPath|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	if errors.Is(err, syscall.ENOENT) {
		p.missing = append(p.missing, c)
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		syscall.Close(fd)
		return "", err
	}
	if st.Mode&syscall.S_IFMT == syscall.S_IFLNK {
		defer syscall.Close(fd)
		return readlink(fd, "")
	}
	p.fds = append(p.fds, fd)
	return "", nil
}

// place mounts a source at its path, which it makes if it is missing.
func (v *view) place(s *source) error {
	p, err := walk(s.ContainerPath)
	if err != nil {
		return err
	}
	defer p.close()
	if len(p.fds) == 1 && len(p.missing) == 0 {
		return errors.New("the root itself cannot be replaced")
	}
	at := p.last()
	for i, name := range p.missing {
		at, err = v.make(at, name, s.isDir || i < len(p.missing)-1, len(p.fds) == 1 && i == 0)
		if err != nil {
			return err
		}
		p.fds = append(p.fds, at)
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(at, &st); err != nil {
		return err
	}
	if isDir := st.Mode&syscall.S_IFMT == syscall.S_IFDIR; isDir != s.isDir {
		return errors.New("one of both is a directory, and the other is not")
	}
	if err := attach(s.tree, at, ""); err != nil {
		return err
	}
	return v.adopt(s.tree)
}

// adopt lets missing paths be made in the mount that fd is on.
func (v *view) adopt(fd int) error {
	id, err := mountOf(fd)
	if err == nil {
		v.own[id] = true
	}
	return err
}

// make makes a missing entry of a directory and opens it.
func (v *view) make(dir int, name string, isDir, isRoot bool) (int, error) {
	id, err := mountOf(dir)
	if err != nil {
		return -1, err
	}
	if v.own[id] {
		fd, err := create(dir, name, isDir)
		if !errors.Is(err, syscall.EROFS) && !errors.Is(err, syscall.EACCES) && !errors.Is(err, syscall.EPERM) {
			return fd, named(name, err)
		}
	}
	shadow, err := v.shadow(dir, isRoot)
	if err != nil {
		return -1, errors.New("there is no room for " + strconv.Quote(name) + " in the directory that lacks it: " +
			err.Error())
	}
	fd, err := create(shadow, name, isDir)
	return fd, named(name, err)
}

func named(name string, err error) error {
	if err != nil {
		return errors.New(strconv.Quote(name) + " cannot be made: " + err.Error())
	}
	return nil
}

// create makes an empty directory or file and opens it. It follows no link.
func create(dir int, name string, isDir bool) (fd int, err error) {
	if isDir {
		if err := syscall.Mkdirat(dir, name, 0o755); err != nil && err != syscall.EEXIST {
			return -1, err
		}
		return syscall.Openat(dir, name, oPath|syscall.O_NOFOLLOW|syscall.O_CLOEXEC|syscall.O_DIRECTORY, 0)
	}
	if err := syscall.Mknodat(dir, name, syscall.S_IFREG|0o644, 0); err != nil && err != syscall.EEXIST {
		return -1, err
	}
	return syscall.Openat(dir, name, oPath|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
}

// shadow puts a tmpfs in the place of a directory that must not be changed, with all that the directory has.
func (v *view) shadow(dir int, isRoot bool) (int, error) {
	var st syscall.Stat_t
	if err := syscall.Fstat(dir, &st); err != nil {
		return -1, err
	}
	entries, err := list(dir)
	if err != nil {
		return -1, err
	}
	if len(entries) > maxEntries {
		return -1, errors.New("it has more than " + strconv.Itoa(maxEntries) + " entries; make the missing path on the " +
			"machine, or choose another")
	}
	shadow, err := newTmpfs([2]string{"mode", strconv.FormatInt(int64(st.Mode&0o7777), 8)}, [2]string{"size", shadowSize})
	if err != nil {
		return -1, errors.New("a tmpfs cannot be made: " + err.Error())
	}
	if err := attach(shadow, dir, ""); err != nil {
		return -1, errors.New("the tmpfs cannot be mounted: " + err.Error())
	}
	for _, e := range entries {
		if err := reflect(dir, shadow, e); err != nil {
			return -1, errors.New("its entry " + strconv.Quote(e.Name()) + " cannot be kept: " + err.Error())
		}
	}
	// An owner that this user namespace does not know cannot be given. It owns a directory in memory only.
	_ = syscall.Fchownat(shadow, "", int(st.Uid), int(st.Gid), atEmptyPath)
	if isRoot {
		if err := pivot(shadow); err != nil {
			return -1, errors.New("the root cannot be changed: " + err.Error())
		}
	}
	v.shadows = append(v.shadows, shadow)
	return shadow, v.adopt(shadow)
}

func list(dir int) ([]os.DirEntry, error) {
	fd, err := syscall.Openat(dir, ".", syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, errors.New("it cannot be listed: " + err.Error())
	}
	d := os.NewFile(uintptr(fd), "directory")
	defer d.Close()
	return d.ReadDir(-1)
}

// reflect shows an entry of a directory in the shadow. One that has gone meanwhile is left out.
func reflect(dir, shadow int, e os.DirEntry) error {
	name := e.Name()
	if e.Type()&os.ModeSymlink != 0 {
		target, err := readlink(dir, name)
		if err != nil {
			return unlessGone(err)
		}
		return symlink(target, shadow, name)
	}
	tree, err := cloneTree(dir, name)
	if err != nil {
		return unlessGone(err)
	}
	defer syscall.Close(tree)
	var st syscall.Stat_t
	if err := syscall.Fstat(tree, &st); err != nil {
		return err
	}
	if st.Mode&syscall.S_IFMT == syscall.S_IFDIR {
		err = syscall.Mkdirat(shadow, name, 0o755)
	} else {
		err = syscall.Mknodat(shadow, name, syscall.S_IFREG|0o644, 0)
	}
	if err != nil {
		return err
	}
	return attach(tree, shadow, name)
}

func unlessGone(err error) error {
	if errors.Is(err, syscall.ENOENT) {
		return nil
	}
	return err
}

// pivot makes a directory that is mounted on the root the root, and lets go of the old one.
func pivot(root int) error {
	if err := syscall.Fchdir(root); err != nil {
		return err
	}
	if err := syscall.PivotRoot(".", "."); err != nil {
		return err
	}
	if err := syscall.Unmount(".", syscall.MNT_DETACH); err != nil {
		return err
	}
	return syscall.Chdir("/")
}
