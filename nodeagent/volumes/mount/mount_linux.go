package mount

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Tmpfs mounts a new file system in memory at dir. It takes no more than size bytes, half of the machine's memory when
// that is 0. Where the kernel can, it is kept out of the swap space.
func Tmpfs(dir string, size int64) error {
	options := ""
	if size > 0 {
		options = "size=" + strconv.FormatInt(size, 10)
	}
	err := mount("tmpfs", dir, "tmpfs", 0, strings.TrimPrefix(options+",noswap", ","))
	if errors.Is(err, unix.EINVAL) { // kernels before 6.4 do not know noswap
		err = mount("tmpfs", dir, "tmpfs", 0, options)
	}
	return err
}

// HugePages mounts a file system of huge pages at dir: with pages of so many bytes, of the kernel's usual size when
// that is 0, and no more than size bytes of them in all, without bound when that is 0.
func HugePages(dir string, page, size int64) error {
	var options []string
	if page > 0 {
		options = append(options, "pagesize="+strconv.FormatInt(page, 10))
	}
	if size > 0 {
		options = append(options, "size="+strconv.FormatInt(size, 10))
	}
	err := mount("nodev", dir, "hugetlbfs", 0, strings.Join(options, ","))
	if errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("the kernel has no huge pages (hugetlbfs): %w", err)
	}
	if errors.Is(err, unix.EINVAL) && page > 0 {
		return fmt.Errorf("the kernel has no huge pages of %d bytes: %w", page, err)
	}
	return err
}

// Bind shows at target, a file or directory of the same kind, what lies behind an open descriptor: whatever becomes of
// the path by which that was opened.
func Bind(from *os.File, target string) error {
	return mount(fmt.Sprintf("/proc/self/fd/%d", from.Fd()), target, "", unix.MS_BIND, "")
}

func mount(source, target, kind string, flags uintptr, options string) error {
	err := unix.Mount(source, target, kind, flags, options)
	if errors.Is(err, unix.EPERM) {
		return ErrNotPermitted
	}
	if err != nil {
		return &fs.PathError{Op: "mount " + kind + " at", Path: target, Err: err}
	}
	return nil
}

// Unmount takes away what is mounted at path. It is an error when something still uses it, or nothing is mounted
// there.
func Unmount(path string) error {
	err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EPERM) {
		return ErrNotPermitted
	}
	if err != nil {
		return &fs.PathError{Op: "unmount", Path: path, Err: err}
	}
	return nil
}

// Below returns the mount points at and below dir, in the order of mounting; one that is mounted on twice is there
// twice.
func Below(dir string) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var points []string
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		at := unescape(fields[4])
		if at == dir || strings.HasPrefix(at, dir+"/") {
			points = append(points, at)
		}
	}
	return points, lines.Err()
}

// unescape undoes how the kernel writes blanks and the like: a backslash and three octal digits.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var out []byte
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out = append(out, byte(n))
				i += 3
				continue
			}
		}
		out = append(out, s[i])
	}
	return string(out)
}

// Is reports whether something is mounted at path itself.
func Is(path string) (bool, error) {
	var info unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, 0, &info)
	if err != nil {
		return false, &fs.PathError{Op: "statx", Path: path, Err: err}
	}
	if info.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return info.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
	}
	points, err := Below(path) // kernels before 5.8 do not say it
	return len(points) > 0 && points[0] == path, err
}
