//go:build rootonly

package images_test

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/compression"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/images"
	"monoplane.dev/nodeagent/images/unpack"
)

// A disk that becomes full in the middle of a layer ends the pull with the reason, and nothing of it stays; with more
// room the next pull succeeds.
func TestRootFullDisk(t *testing.T) {
	host := serve(t)
	push(t, host+"/app:v1", imageOf(t, layer(t, compression.GZip, file("small", "x")),
		layer(t, compression.GZip, file("large", strings.Repeat("\x00", 20<<20)), file("after", "y"))))
	disk := diskOf(t, "size=8m")
	s := openIn(t, filepath.Join(disk, "images"), func(c *images.Config) { c.Limits.Reserve = 1 })
	for range 2 {
		_, err := s.Pull(t.Context(), host+"/app:v1", images.PullOptions{})
		if !errors.Is(err, unpack.ErrNoRoom) || !strings.Contains(err.Error(), "layer 2 of 2") {
			t.Errorf("on a full disk: %v", err)
		}
		if left := remains(t, s); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
	if err := unix.Mount("", disk, "", unix.MS_REMOUNT, "size=64m"); err != nil {
		t.Fatal(err)
	}
	pull(t, s, host+"/app:v1")
}

// diskOf returns a disk in memory, as these mount options have it.
func diskOf(t *testing.T, options string) string {
	t.Helper()
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return disk
}

// So does one that can have no more files, at whichever of them: a pull, or an archive that is loaded, ends with the
// reason, and nothing stays.
func TestRootFullOfFiles(t *testing.T) {
	img := imageOf(t, layer(t, compression.GZip, file("small", "x")), many(t, compression.GZip, "d", 20))
	host := serve(t)
	push(t, host+"/app:v1", img)
	saved := pack(t, layoutOf(t, indexOf(img, v1.Descriptor{})))
	disk := diskOf(t, "size=64m,nr_inodes=1000")
	s := openIn(t, filepath.Join(disk, "images"), func(c *images.Config) { c.Limits.Reserve = 1 })
	var st unix.Statfs_t
	if err := unix.Statfs(disk, &st); err != nil {
		t.Fatal(err)
	}
	has := 1000 - int(st.Ffree)
	for what, get := range map[string]func() error{
		"pull": func() error {
			_, err := s.Pull(t.Context(), host+"/app:v1", images.PullOptions{})
			return err
		},
		"load": func() error {
			_, err := s.Load(t.Context(), bytes.NewReader(saved))
			return err
		},
	} {
		failed := 0
		for free := 1; ; free++ {
			if err := unix.Mount("", disk, "", unix.MS_REMOUNT, fmt.Sprint("nr_inodes=", has+free)); err != nil {
				t.Fatal(err)
			}
			err := get()
			if err == nil {
				break
			}
			failed++
			if !errors.Is(err, unpack.ErrNoRoom) {
				t.Errorf("%s with room for %d files: %v", what, free, err)
			}
			if left := remains(t, s); len(left) > 0 {
				t.Errorf("%s with room for %d files: left behind: %v", what, free, left)
			}
			if free > 200 {
				t.Fatalf("%s: %v", what, err)
			}
		}
		if failed < 20 {
			t.Errorf("%s failed %d times: the disk was not full", what, failed)
		}
		all, err := s.List()
		if err == nil {
			err = s.Remove(t.Context(), all[0].ID)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
