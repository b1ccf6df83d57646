package embedded

import (
	"os"

	"golang.org/x/sys/unix"
)

// freeBytes returns how much can be written below dir; the error says that nothing can.
func freeBytes(dir string) (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	if fs.Flags&unix.ST_RDONLY != 0 {
		return 0, &os.PathError{Op: "write to", Path: dir, Err: unix.EROFS}
	}
	return int64(fs.Bavail) * fs.Frsize, nil //nolint:gosec // no disk is that large
}

// claim makes the file system keep room for the first size bytes of a file, whose length stays as it is.
func claim(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size); err != nil {
		return &os.PathError{Op: "fallocate", Path: path, Err: err}
	}
	return nil
}
