//go:build rootonly

package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// smallDisk mounts a file system of so many MiB, with further options of tmpfs, and returns its path.
func smallDisk(t *testing.T, mib int, options string) string {
	t.Helper()
	dir := filepath.Dir(shortDir(t))
	disk := filepath.Join(dir, "disk")
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=0700%s", mib, options)); err != nil {
		t.Fatalf("mount a tmpfs (this test needs root): %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Error(errors.Join(fmt.Errorf("unmount %s: %w", disk, err), syscall.Unmount(disk, syscall.MNT_DETACH)))
		}
	})
	return disk
}

// A disk that is too small for a new cluster is said at once.
func TestRootDiskTooSmall(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, 3, "")
	refused(t, monoplane(t, nil, upArgs(filepath.Join(disk, "data"), "--runtime", "fake")...), "no space left on device")
}

// A disk that fills up while the cluster runs: the server refuses what it cannot keep, saying why, and still answers
// reads. Once room is made it writes again, and every acknowledged write is there, also after it was killed.
// spec: DEL-13
func TestRootDiskFull(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, 64, "")
	dir := filepath.Join(disk, "data")
	c := startIn(t, dir, "--runtime", "fake")
	maps := c.client(t).CoreV1().ConfigMaps("default")
	// Most of what is left is taken by something else.
	ballast := filepath.Join(disk, "ballast")
	fill(t, ballast, 16<<20)

	var acknowledged []string
	var refusal error
	for i := 0; refusal == nil && i < 400; i++ {
		name := fmt.Sprintf("m%d", i)
		_, refusal = maps.Create(t.Context(), configMap(name, "x"), metav1.CreateOptions{})
		if refusal == nil {
			acknowledged = append(acknowledged, name)
			refusal = grow(t, c, name)
		}
	}
	if refusal == nil || len(acknowledged) == 0 || !strings.Contains(refusal.Error(), "no space left on device") {
		t.Fatalf("%d writes were acknowledged, then: %v", len(acknowledged), refusal)
	}
	t.Logf("after %d writes: %v", len(acknowledged), refusal)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	fill(t, ballast, 0) // Nothing is left now.
	there := func(maps clientcorev1.ConfigMapInterface) {
		t.Helper()
		for _, name := range acknowledged {
			if _, err := maps.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
				t.Errorf("an acknowledged write cannot be read: %s: %v", name, err)
			}
		}
	}
	there(maps)

	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Create(t.Context(), configMap("after", "x"), metav1.CreateOptions{}); err != nil {
		t.Errorf("a write after room was made: %v", err)
	}
	c.kill(t)
	there(startIn(t, dir, "--runtime", "fake").client(t).CoreV1().ConfigMaps("default"))
}

// fill writes a file until the disk is full but for so many bytes.
func fill(t *testing.T, path string, left int64) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 64<<10)
	for err == nil {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(info.Size() - left); err != nil {
		t.Fatal(err)
	}
}

// grow makes an object large, so that the disk is soon needed.
func grow(t *testing.T, c *cluster, name string) error {
	t.Helper()
	large := configMap(name, "x")
	large.Data["large"] = strings.Repeat("x", 500_000)
	_, err := c.client(t).CoreV1().ConfigMaps("default").Update(t.Context(), large, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		t.Fatal(err)
	}
	return err
}
