package crash

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// disk is a file system that keeps its files in another directory, and whose writes can be made slow or made to fail.
type disk struct {
	server *fuse.Server
	// slow is the longest delay of a write in nanoseconds, 0 for none; failing is one out of how many writes fails, 0
	// for none.
	slow, failing atomic.Int64
	delayed       atomic.Int64 // counts
	failed        atomic.Int64 // counts
	synced        atomic.Int64 // counts

	mu sync.Mutex
	// unsynced are the files that the disk was not asked to keep since they were written last, by number, and
	// unsyncedNames what was put into the place of something since their directory was.
	unsynced      map[uint64]string
	unsyncedNames map[uint64][]string
	// hasty are the files that were put into the place of something while they were unsynced.
	hasty []string
}

// forgets returns the files, of those that matter by their paths, that would not be as they are after a power failure.
func (d *disk) forgets(matters func(path string) bool) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := slices.Concat(slices.Collect(maps.Values(d.unsynced)), d.hasty)
	for _, names := range d.unsyncedNames {
		all = append(all, names...)
	}
	all = slices.DeleteFunc(all, func(path string) bool { return !matters(path) })
	slices.Sort(all)
	return slices.Compact(all)
}

// needDisk says why there can be no such file system here, if so.
func needDisk() error {
	if os.Geteuid() != 0 {
		return errors.New("to mount a file system needs root")
	}
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// mountDisk mounts at dir what is in backing.
func mountDisk(dir, backing string) (*disk, error) {
	d := &disk{unsynced: map[uint64]string{}, unsyncedNames: map[uint64][]string{}}
	root, err := fs.NewLoopbackRoot(backing)
	if err != nil {
		return nil, err
	}
	loopback, ok := root.(*fs.LoopbackNode)
	if !ok {
		return nil, fmt.Errorf("the root is a %T", root)
	}
	top := d.wrap(loopback)
	loopback.RootData.RootNode = top
	d.server, err = fs.Mount(dir, top, &fs.Options{MountOptions: fuse.MountOptions{
		AllowOther: true, DirectMountStrict: true, Options: []string{"default_permissions"}, FsName: "crash", Name: "crash",
		// With it Linux 6.9 and later write to the files in backing themselves, past the disk.
		DisabledCapabilities: fuse.CAP_PASSTHROUGH,
	}})
	return d, err
}

func (d *disk) wrap(n *fs.LoopbackNode) *file { return &file{LoopbackNode: n, disk: d} }

func (d *disk) slowDown(most time.Duration) { d.slow.Store(int64(most)) }
func (d *disk) fail(oneOf int)              { d.failing.Store(int64(oneOf)) }
func (d *disk) heal()                       { d.slow.Store(0); d.failing.Store(0) }

// trouble is what a write meets.
func (d *disk) trouble(ctx context.Context) syscall.Errno {
	if most := d.slow.Load(); most > 0 {
		d.delayed.Add(1)
		select {
		case <-time.After(time.Duration(rand.Int64N(most))):
		case <-ctx.Done():
		}
	}
	if oneOf := d.failing.Load(); oneOf > 0 && rand.Int64N(oneOf) == 0 {
		d.failed.Add(1)
		return []syscall.Errno{syscall.EIO, syscall.ENOSPC}[rand.IntN(2)]
	}
	return 0
}

// file is a file or directory of the disk.
type file struct {
	*fs.LoopbackNode
	disk *disk
}

var (
	_ fs.NodeWrapChilder = (*file)(nil)
	_ fs.NodeWriter      = (*file)(nil)
	_ fs.NodeFsyncer     = (*file)(nil)
	_ fs.NodeCreater     = (*file)(nil)
	_ fs.NodeMkdirer     = (*file)(nil)
	_ fs.NodeRenamer     = (*file)(nil)

	_ fs.NodeOpendirHandler = (*file)(nil)
)

func (f *file) WrapChild(_ context.Context, child fs.InodeEmbedder) fs.InodeEmbedder {
	if n, ok := child.(*fs.LoopbackNode); ok {
		return f.disk.wrap(n)
	}
	return child
}

func (f *file) Write(ctx context.Context, h fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	w, ok := h.(fs.FileWriter)
	if !ok {
		return 0, syscall.EBADF
	}
	if errno := f.disk.trouble(ctx); errno != 0 {
		return 0, errno
	}
	f.disk.mu.Lock()
	f.disk.unsynced[f.StableAttr().Ino] = f.Path(nil)
	f.disk.mu.Unlock()
	return w.Write(ctx, data, off)
}

func (f *file) Fsync(ctx context.Context, h fs.FileHandle, flags uint32) syscall.Errno {
	if errno := f.keep(ctx); errno != 0 {
		return errno
	}
	s, ok := h.(fs.FileFsyncer)
	if !ok {
		return syscall.EBADF
	}
	return s.Fsync(ctx, flags)
}

// keep is what the disk does when it is asked to keep a file or directory as it is.
func (f *file) keep(ctx context.Context) syscall.Errno {
	if errno := f.disk.trouble(ctx); errno != 0 {
		return errno
	}
	f.disk.synced.Add(1)
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	delete(f.disk.unsynced, f.StableAttr().Ino)
	delete(f.disk.unsyncedNames, f.StableAttr().Ino)
	return 0
}

// dir is a directory that is open.
type dir struct {
	dirHandle
	of *file
}

type dirHandle interface {
	fs.FileReaddirenter
	fs.FileSeekdirer
	fs.FileReleasedirer
	fs.FileFsyncdirer
}

func (f *file) OpendirHandle(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	h, flags, errno := f.LoopbackNode.OpendirHandle(ctx, flags)
	if handle, ok := h.(dirHandle); ok {
		h = &dir{handle, f}
	}
	return h, flags, errno
}

func (d *dir) Fsyncdir(ctx context.Context, flags uint32) syscall.Errno {
	if errno := d.of.keep(ctx); errno != 0 {
		return errno
	}
	return d.dirHandle.Fsyncdir(ctx, flags)
}

func (f *file) Create(
	ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut,
) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	if errno := f.disk.trouble(ctx); errno != 0 {
		return nil, nil, 0, errno
	}
	return f.LoopbackNode.Create(ctx, name, flags, mode, out)
}

func (f *file) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if errno := f.disk.trouble(ctx); errno != 0 {
		return nil, errno
	}
	return f.LoopbackNode.Mkdir(ctx, name, mode, out)
}

func (f *file) Rename(
	ctx context.Context, name string, to fs.InodeEmbedder, newName string, flags uint32,
) syscall.Errno {
	if errno := f.disk.trouble(ctx); errno != 0 {
		return errno
	}
	moved, into := f.GetChild(name), to.EmbeddedInode()
	errno := f.LoopbackNode.Rename(ctx, name, to, newName, flags)
	if errno == 0 && moved != nil && !moved.IsDir() {
		f.disk.mu.Lock()
		defer f.disk.mu.Unlock()
		path := filepath.Join(into.Path(nil), newName)
		if ino := moved.StableAttr().Ino; f.disk.unsynced[ino] != "" {
			f.disk.hasty = append(f.disk.hasty, path)
			delete(f.disk.unsynced, ino)
		}
		ino := into.StableAttr().Ino
		f.disk.unsyncedNames[ino] = append(f.disk.unsyncedNames[ino], path)
	}
	return errno
}

// The disk keeps files, and fails when it is told to.
func TestDisk(t *testing.T) {
	if err := needDisk(); err != nil {
		t.Skipf("no file system that fails can be mounted here: %v", err)
	}
	top, err := os.MkdirTemp("", "crash")
	if err != nil {
		t.Fatal(err)
	}
	defer startGuard(t, top)()
	mount, backing := filepath.Join(top, "disk"), filepath.Join(top, "backing")
	for _, dir := range []string{mount, backing} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	d, err := mountDisk(mount, backing)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string) error { return os.WriteFile(filepath.Join(mount, name), []byte("text"), 0o600) }
	open := func(name string) *os.File {
		f, err := os.OpenFile(filepath.Join(mount, name), os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	if err := write("before"); err != nil {
		t.Fatal(err)
	}
	opened := open("opened")
	d.fail(1)
	_, written := opened.WriteString("text")
	for what, err := range map[string]error{
		"a new file": write("sick"), "a write": written, "keeping a file": opened.Sync(),
		"a new name": os.Rename(filepath.Join(mount, "before"), filepath.Join(mount, "after")),
	} {
		if !errors.Is(err, syscall.EIO) && !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s on a disk that fails: %v", what, err)
		}
	}
	d.heal()
	d.slowDown(time.Millisecond)
	if err := write("after"); err != nil {
		t.Error(err)
	}
	if d.failed.Load() == 0 || d.delayed.Load() == 0 {
		t.Error("the disk did not count")
	}
	// What the disk was not asked to keep when it took its name, and what nobody asked to keep under its name.
	names, err := os.Open(mount)
	if err != nil {
		t.Fatal(err)
	}
	defer names.Close()
	for _, c := range []struct {
		name      string
		file, dir bool
		forgotten bool
	}{
		{"neither", false, false, true}, {"dir", false, true, true}, {"file", true, false, true},
		{"both", true, true, false},
	} {
		f := open("." + c.name)
		_, err := f.WriteString("text")
		if err == nil && c.file {
			err = f.Sync()
		}
		if err == nil {
			err = os.Rename(f.Name(), filepath.Join(mount, c.name))
		}
		if err == nil && c.dir {
			err = names.Sync()
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := d.forgets(func(path string) bool { return path == c.name }); len(got) > 0 != c.forgotten {
			t.Errorf("%s asked to be kept: it forgets %q", c.name, got)
		}
	}
	for _, name := range []string{"before", "after"} {
		if text, err := os.ReadFile(filepath.Join(backing, name)); err != nil || string(text) != "text" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}
