package quota

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// first is the least of the ids that are given, which end below 1<<31: tools show them as signed numbers.
const first Project = 1 << 30

// attempts is how many ids are tried before it is said that something is wrong.
const attempts = 16

// New returns the project of a directory in which there are no files yet, and gives it one if it has none.
func New(dir string) (Project, error) {
	f, err := open(dir)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var now state
	now.version = stateVersion
	if err := f.quota(getState, 0, unsafe.Pointer(&now)); err != nil {
		return 0, err
	}
	if now.flags&projectsEnforced == 0 {
		return 0, f.failed("quotas that are enforced", errors.ErrUnsupported)
	}
	attr, err := f.attributes()
	if err != nil {
		return 0, err
	}
	if attr.project != 0 {
		return f.own(attr)
	}
	for range attempts {
		p := first + Project(rand.Uint32N(uint32(first)))
		has, err := f.get(p)
		if err != nil {
			return 0, err
		}
		if has != (block{}) {
			continue
		}
		attr.project, attr.flags = uint32(p), attr.flags|projectInherits
		return p, f.control(setAttributes, &attr)
	}
	return 0, f.failed("projects", errors.New("all ids that were tried are used"))
}

// Add has what is made in a further directory of the same file system, in which there are no files yet, count for the
// project, too.
func (p Project) Add(dir string) error {
	f, err := open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	attr, err := f.attributes()
	if err != nil {
		return err
	}
	attr.project, attr.flags = uint32(p), attr.flags|projectInherits
	return f.control(setAttributes, &attr)
}

// Limit says how many bytes the files of a project can take in all, on the file system of a directory; 0 for as many
// as there is room for, after which nothing is left of the project when its files are gone.
func (p Project) Limit(dir string, bytes int64) error {
	f, err := open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	const unit = 1024 // Of limits, though not of what is used.
	return f.quota(setQuota, p, unsafe.Pointer(&block{hard: (uint64(bytes) + unit - 1) / unit, valid: validLimits}))
}

// directory is an open one, by which its file system is asked.
type directory struct{ *os.File }

func open(dir string) (directory, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return directory{}, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	return directory{os.NewFile(uintptr(fd), dir)}, nil
}

// get returns the limits and the usage of a project; all is zero where the file system knows nothing of it.
func (d directory) get(p Project) (block, error) {
	var out block
	err := d.quota(getQuota, p, unsafe.Pointer(&out))
	if errors.Is(err, unix.ENOENT) { // XFS
		return block{}, nil
	}
	out.valid, out.blockTime, out.inodeTime = 0, 0, 0 // What the file system can say, and grace, of which there is none.
	return out, err
}

// quota is quotactl_fd(2) for projects.
func (d directory) quota(command uintptr, p Project, arg unsafe.Pointer) error {
	_, _, e := unix.Syscall6(unix.SYS_QUOTACTL_FD, d.Fd(), command<<8|projects, uintptr(p), uintptr(arg), 0, 0)
	switch e {
	case 0:
		return nil
	case unix.ENOSYS, unix.ESRCH, unix.EOPNOTSUPP, unix.EINVAL, unix.EPERM, unix.ENOTBLK:
		return d.failed("quotas", fmt.Errorf("%w: %w", errors.ErrUnsupported, e))
	}
	return d.failed("quotas", e)
}

// own returns the project of a directory that is in one: what it has inherited is not its own.
func (d directory) own(attr attributes) (Project, error) {
	above, err := open(filepath.Dir(d.Name()))
	if err != nil {
		return 0, err
	}
	defer above.Close()
	inherited, err := above.attributes()
	if err == nil && (Project(attr.project) < first || attr.project == inherited.project) {
		err = d.failed("another project", errors.ErrUnsupported)
	}
	if err != nil {
		return 0, err
	}
	return Project(attr.project), nil
}

func (d directory) attributes() (attributes, error) {
	var a attributes
	err := d.control(getAttributes, &a)
	return a, err
}

// control is an ioctl(2) for the attributes of the directory.
func (d directory) control(command uintptr, a *attributes) error {
	_, _, e := unix.Syscall(unix.SYS_IOCTL, d.Fd(), command, uintptr(unsafe.Pointer(a)))
	switch e {
	case 0:
		return nil
	case unix.ENOTTY, unix.EOPNOTSUPP:
		return d.failed("attributes", fmt.Errorf("%w: %w", errors.ErrUnsupported, e))
	}
	return d.failed("attributes", e)
}

func (d directory) failed(what string, err error) error {
	return &fs.PathError{Op: what + " of the file system of", Path: d.Name(), Err: err}
}
