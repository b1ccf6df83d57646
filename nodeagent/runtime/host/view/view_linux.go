package view

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"syscall"

	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/host/sys"
)

// Remedy is what can be done where views are refused.
const Remedy = "it needs root with CAP_SYS_ADMIN, or unprivileged user namespaces (sysctl " +
	"kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0 and user.max_user_namespaces " +
	"above 0, where they exist), and Linux 5.12"

// Refused says that the machine does not let this process make a view of any kind.
type Refused struct {
	Step string
	Err  error
}

// Error implements error.
func (r *Refused) Error() string { return r.Step + ": " + r.Err.Error() + "; " + Remedy }

// Unwrap returns the system's error.
func (r *Refused) Unwrap() error { return r.Err }

// refused makes err a Refused if it is one that the first steps give to who may not make views.
func refused(step string, err error) error {
	switch {
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.ENOSYS),
		errors.Is(err, syscall.ENOSPC):
		return &Refused{Step: step, Err: err}
	}
	return errors.New(step + ": " + err.Error())
}

// view is a namespace that is being made.
type view struct {
	// own are the mounts in which missing directories may be made: volumes, and tmpfs of this package.
	own map[string]bool
	// shadows are the tmpfs that took the place of directories.
	shadows []int
}

// source is what is to be mounted.
type source struct {
	shimwire.Mount
	tree  int // A copy of the mount, attached nowhere.
	isDir bool
}

// Build moves the calling thread to a mount namespace of its own and makes it what the request's mounts say. With a
// read-only root nothing can be written to but what is mounted, /proc, /dev/shm and /dev/mqueue. The paths that the
// request masks are empty, and those that it makes read-only cannot be written to, whatever was mounted there.
func Build(req *shimwire.StartRequest) error {
	if err := syscall.Unshare(syscall.CLONE_NEWNS); err != nil {
		return refused("a mount namespace cannot be made", err)
	}
	v := &view{own: map[string]bool{}}
	var sources []*source
	for _, m := range inOrder(req.Mounts) {
		s, err := open(m)
		if err != nil {
			return inMount(m, err)
		}
		sources = append(sources, s)
	}
	// What is mounted in here stays in here; what the machine mounts later is seen.
	root, err := openDir("/")
	if err != nil {
		return err
	}
	if err := setAttr(root, mountAttr{propagation: syscall.MS_SLAVE}, true); err != nil {
		return refused("the mount namespace cannot be cut off from the machine's", err)
	}
	if req.ReadOnlyRoot {
		if err := seal(root); err != nil {
			return err
		}
	}
	syscall.Close(root)
	for _, s := range sources {
		if err := v.place(s); err != nil {
			return inMount(s.Mount, err)
		}
		syscall.Close(s.tree)
	}
	for _, fd := range v.shadows {
		if req.ReadOnlyRoot {
			if err := setAttr(fd, mountAttr{set: attrReadOnly}, false); err != nil {
				return errors.New("the root cannot be made read-only: " + err.Error())
			}
		}
		syscall.Close(fd)
	}
	return mask(req.MaskedPaths, req.ReadOnlyPaths)
}

// Join moves the calling thread to the mount namespace ns.
func Join(ns int) error {
	// A thread that shares its working directory with others cannot change what that is seen in.
	if err := syscall.Unshare(syscall.CLONE_FS); err != nil {
		return errors.New("the thread cannot be prepared for the container's view: " + err.Error())
	}
	if _, _, e := syscall.RawSyscall(setns(), uintptr(ns), syscall.CLONE_NEWNS, 0); e != 0 {
		return errors.New("the container's view cannot be entered: " + e.Error())
	}
	return nil
}

func inMount(m shimwire.Mount, err error) error {
	var r *Refused
	if errors.As(err, &r) {
		return err
	}
	return errors.New("mount of " + strconv.Quote(m.HostPath) + " at " + strconv.Quote(m.ContainerPath) + ": " +
		err.Error())
}

// inOrder lists the mounts that others lie in before those.
func inOrder(mounts []shimwire.Mount) []shimwire.Mount {
	depth := func(m shimwire.Mount) int {
		n := 0
		for _, c := range sys.Split(m.ContainerPath, '/') {
			if c != "" && c != "." {
				n++
			}
		}
		return n
	}
	mounts = slices.Clone(mounts)
	slices.SortStableFunc(mounts, func(a, b shimwire.Mount) int { return depth(a) - depth(b) })
	return mounts
}

// open copies the mount of a host path, with the attributes that it is to have.
func open(m shimwire.Mount) (*source, error) {
	fd, err := syscall.Open(m.HostPath, oPath|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, errors.New("the host path cannot be opened: " + err.Error())
	}
	defer func() { syscall.Close(fd) }()
	if m.SubPath != "" {
		sub, err := below(fd, m.SubPath)
		if err != nil {
			return nil, errors.New(strconv.Quote(m.SubPath) + " in the host path cannot be opened: " + err.Error())
		}
		syscall.Close(fd)
		fd = sub
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return nil, errors.New("the host path cannot be read: " + err.Error())
	}
	if err := checkPropagation(fd, m.Propagation); err != nil {
		return nil, err
	}
	tree, err := cloneTree(fd, "")
	if err != nil {
		return nil, refused("the host path cannot be bound", err)
	}
	attr := mountAttr{propagation: syscall.MS_PRIVATE}
	switch m.Propagation {
	case shimwire.FromHost:
		attr.propagation = syscall.MS_SLAVE
	case shimwire.Bidirectional:
		attr.propagation = 0 // As a copy of a shared mount it is one of its peers.
	}
	if attr != (mountAttr{}) {
		if err := setAttr(tree, attr, true); err != nil {
			return nil, refused("its propagation cannot be set", err)
		}
	}
	if m.ReadOnly {
		if err := setAttr(tree, mountAttr{set: attrReadOnly}, m.Recursive); err != nil {
			return nil, errors.New("it cannot be made read-only: " + err.Error())
		}
	}
	return &source{Mount: m, tree: tree, isDir: st.Mode&syscall.S_IFMT == syscall.S_IFDIR}, nil
}

// maxResolved bounds how often a path is resolved again because something was renamed meanwhile.
const maxResolved = 64

// below opens a path below a directory for mounting. No link leads it out of there, and whatever is renamed meanwhile
// does not either.
func below(dir int, path string) (fd int, err error) {
	for range maxResolved {
		fd, err = openBeneath(dir, path)
		if !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if errors.Is(err, syscall.EXDEV) || errors.Is(err, syscall.ELOOP) {
		return -1, errors.New("it leads out of there, or through a link that cannot be followed")
	}
	return fd, err
}

// checkPropagation refuses what the mount that fd is on does not offer.
func checkPropagation(fd int, p shimwire.Propagation) error {
	if p == shimwire.Private {
		return nil
	}
	id, err := mountOf(fd)
	if err != nil {
		return err
	}
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for _, line := range sys.Split(string(b), '\n') {
		f := sys.Fields(line)
		if len(f) < 7 || f[0] != id {
			continue
		}
		for _, tag := range f[6:] {
			switch {
			case tag == "-":
				if p == shimwire.FromHost {
					return errors.New("mount propagation HostToContainer: " + f[4] + " is neither a shared nor a slave mount " +
						"(mount --make-rshared " + f[4] + ")")
				}
				return errors.New("mount propagation Bidirectional: " + f[4] + " is not a shared mount for this process " +
					"(it needs root and mount --make-rshared " + f[4] + ")")
			case sys.HasPrefix(tag, "shared:"), p == shimwire.FromHost && sys.HasPrefix(tag, "master:"):
				return nil
			}
		}
	}
	return errors.New("mount propagation: the mount of the host path is not in /proc/self/mountinfo")
}

// seal makes all that is mounted read-only, except what every process needs to be able to write to.
func seal(root int) error {
	const problem = "the root cannot be made read-only: "
	var spared []string
	for _, path := range []string{"/proc", "/dev/shm", "/dev/mqueue"} {
		var fs syscall.Statfs_t
		if err := syscall.Statfs(path, &fs); err == nil && fs.Flags&syscall.MS_RDONLY == 0 && isMount(path) {
			spared = append(spared, path)
		}
	}
	if err := setAttr(root, mountAttr{set: attrReadOnly}, true); err != nil {
		return errors.New(problem + err.Error())
	}
	for _, path := range spared {
		fd, err := openDir(path)
		if err == nil {
			err = setAttr(fd, mountAttr{clear: attrReadOnly}, false)
			syscall.Close(fd)
		}
		if err != nil {
			return errors.New(problem + path + ": " + err.Error())
		}
	}
	return nil
}

// isMount tells whether something is mounted at path, a directory.
func isMount(path string) bool {
	fd, err := openDir(path)
	if err != nil {
		return false
	}
	defer syscall.Close(fd)
	above, err := syscall.Openat(fd, "..", oPath|syscall.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer syscall.Close(above)
	a, err1 := mountOf(fd)
	b, err2 := mountOf(above)
	return err1 == nil && err2 == nil && a != b
}

func openDir(path string) (int, error) {
	fd, err := syscall.Open(path, oPath|syscall.O_CLOEXEC|syscall.O_DIRECTORY, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// mountOf names the mount that an open file is on, as /proc/self/mountinfo does.
func mountOf(fd int) (string, error) {
	b, err := os.ReadFile("/proc/thread-self/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return "", err
	}
	f := sys.Fields(string(b))
	for i := 0; i+1 < len(f); i++ {
		if f[i] == "mnt_id:" {
			return f[i+1], nil
		}
	}
	return "", errors.New("/proc/thread-self/fdinfo does not tell the mount")
}
