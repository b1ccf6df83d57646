package pages

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

var errMaps = errors.New("/proc/self/maps is not understood")

// Release lets go of the pages in which this process has mapped the file with this path, of the mappings that which
// chooses. They must not change meanwhile: the pages of what else lies at their addresses would be lost.
func Release(path string, which func(Mapping) bool) error {
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
		m, err := Parse(line)
		if err != nil {
			return err
		}
		if m.Path != path || !which(m) {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.Begin, m.End-m.Begin, unix.MADV_DONTNEED); errno != 0 {
			return errno
		}
	}
	return nil
}

// Parse reads a line of /proc/self/maps: "address-address permissions offset device inode   path", where the path may
// be missing and may have spaces.
func Parse(line string) (Mapping, error) {
	var fields [5]string
	rest := strings.TrimSuffix(line, "\n")
	for i := range fields {
		fields[i], rest, _ = strings.Cut(strings.TrimLeft(rest, " "), " ")
	}
	from, to, ok := strings.Cut(fields[0], "-")
	begin, err := strconv.ParseUint(from, 16, 64)
	end, err2 := strconv.ParseUint(to, 16, 64)
	if !ok || err != nil || err2 != nil || end < begin || len(fields[1]) != 4 {
		return Mapping{}, errMaps
	}
	return Mapping{
		Begin: uintptr(begin), End: uintptr(end), Permissions: fields[1],
		Path: strings.ReplaceAll(strings.TrimLeft(rest, " "), `\012`, "\n"),
	}, nil
}
