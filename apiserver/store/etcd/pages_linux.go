package etcd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ReleasePages lets go of the memory in which this process sees the database: etcd maps the whole file in advance and
// seldom looks at most of it. What is needed again comes back from the system's page cache, which may drop it under
// pressure.
func (e *Embedded) ReleasePages(ctx context.Context) error {
	return e.pinned(ctx, func() error { return releasePages(e.srv.Cfg.BackendPath()) })
}

// pinned calls f while the database is mapped where it is. Otherwise it may be mapped elsewhere at any moment, when it
// is defragmented or closed, and memory of others come to lie at its old address.
func (e *Embedded) pinned(ctx context.Context, f func() error) error {
	_, err := call(ctx, e, func(context.Context) (struct{}, error) {
		// A transaction that reads keeps the mapping.
		tx := e.srv.Backend().ConcurrentReadTx()
		defer tx.RUnlock()
		return struct{}{}, f()
	})
	return err
}

var errMaps = errors.New("/proc/self/maps is not understood")

// releasePages does so for the file with this path. Its mappings must not change meanwhile: the pages of what else
// lies at their addresses would be lost.
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
		m, err := parseMapping(line)
		if err != nil {
			return err
		}
		if m.path != path || !m.shared {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.begin, m.end-m.begin, unix.MADV_DONTNEED); errno != 0 {
			return errno
		}
	}
	return nil
}

// mapping is a line of /proc/self/maps.
type mapping struct {
	begin, end uintptr
	shared     bool
	path       string
}

// parseMapping reads "address-address permissions offset device inode   path", where the path may be missing and may
// have spaces.
func parseMapping(line string) (mapping, error) {
	var fields [5]string
	rest := strings.TrimSuffix(line, "\n")
	for i := range fields {
		fields[i], rest, _ = strings.Cut(strings.TrimLeft(rest, " "), " ")
	}
	from, to, ok := strings.Cut(fields[0], "-")
	begin, err := strconv.ParseUint(from, 16, 64)
	end, err2 := strconv.ParseUint(to, 16, 64)
	if !ok || err != nil || err2 != nil || end < begin || len(fields[1]) != 4 {
		return mapping{}, errMaps
	}
	return mapping{
		begin: uintptr(begin), end: uintptr(end), shared: fields[1][3] == 's',
		path: strings.ReplaceAll(strings.TrimLeft(rest, " "), `\012`, "\n"),
	}, nil
}
