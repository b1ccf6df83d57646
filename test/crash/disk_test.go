package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
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
	d := &disk{}
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
	return w.Write(ctx, data, off)
}

func (f *file) Fsync(ctx context.Context, h fs.FileHandle, flags uint32) syscall.Errno {
	if errno := f.disk.trouble(ctx); errno != 0 {
		return errno
	}
	f.disk.synced.Add(1)
	if s, ok := h.(fs.FileFsyncer); ok {
		return s.Fsync(ctx, flags)
	}
	return 0 // a directory; the machine does not lose its power here
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
	return f.LoopbackNode.Rename(ctx, name, to, newName, flags)
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
	if err := write("before"); err != nil {
		t.Fatal(err)
	}
	d.fail(1)
	if err := write("sick"); !errors.Is(err, syscall.EIO) && !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a write to a disk that fails: %v", err)
	}
	d.heal()
	d.slowDown(time.Millisecond)
	if err := write("after"); err != nil {
		t.Error(err)
	}
	if d.failed.Load() == 0 || d.delayed.Load() == 0 {
		t.Error("the disk did not count")
	}
	for _, name := range []string{"before", "after"} {
		if text, err := os.ReadFile(filepath.Join(backing, name)); err != nil || string(text) != "text" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}
