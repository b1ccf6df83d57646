package images

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncFS waits until a file's file system has written everything.
func syncFS(f *os.File) error { return unix.Syncfs(int(f.Fd())) }

// available returns how many bytes may still be written where a path is.
func available(path string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	return int64(st.Bavail) * st.Bsize, nil
}
