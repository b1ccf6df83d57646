package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// releasePages lets go of the memory in which this process sees a file: etcd maps its whole database in advance and
// seldom looks at most of it. What is needed again comes back from the system's page cache, which may drop it under
// pressure.
func releasePages(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return err
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(maps)) {
		// address-address permissions offset device inode path
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[5] != path || !strings.HasSuffix(fields[1], "s") {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		begin, err := strconv.ParseUint(from, 16, 64)
		if err != nil {
			return err
		}
		end, err := strconv.ParseUint(to, 16, 64)
		if err != nil {
			return err
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, uintptr(begin), uintptr(end-begin), unix.MADV_DONTNEED); errno != 0 {
			return errno
		}
	}
	return nil
}
