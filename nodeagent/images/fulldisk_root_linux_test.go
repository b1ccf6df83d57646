//go:build rootonly

package images_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/compression"
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
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=8m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
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
