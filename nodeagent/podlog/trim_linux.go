package podlog

import (
	"bytes"
	"errors"
	"io"
	"os"
	"syscall"
)

// trim gives the room of all but the last bytes of a file back to the disk, from the beginning of a line on, where the
// file system can do that. What is left keeps its place, so that whoever reads the file is not disturbed; a hole is
// before it.
func trim(path string, keep int64) (err error) {
	const (
		keepSize  = 1 // FALLOC_FL_KEEP_SIZE
		punchHole = 2 // FALLOC_FL_PUNCH_HOLE
	)
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW, 0) //nolint:gosec // the agent made the path
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil || info.Size() <= keep {
		return err
	}
	cut := info.Size() - keep
	begin := make([]byte, chunk)
	n, err := f.ReadAt(begin, cut)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	cut += int64(bytes.IndexByte(begin[:n], '\n')) + 1
	err = syscall.Fallocate(int(f.Fd()), keepSize|punchHole, 0, cut) //nolint:gosec // a descriptor is small
	if errors.Is(err, syscall.EOPNOTSUPP) {
		return nil
	}
	return err
}

// dataStart returns where the first hole of a file ends; 0 when it begins with data.
func dataStart(f *os.File) int64 {
	const seekData = 3 // SEEK_DATA
	at, err := f.Seek(0, seekData)
	if err != nil {
		return 0 // an empty file, or a file system that does not know
	}
	return at
}
