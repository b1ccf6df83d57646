//go:build rootonly

package crash

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// A short run on a disk that is slow and fails, where TestCrash may have none.
//
// spec: DEL-13, SAFE-1
func TestRootCrash(t *testing.T) {
	if err := needDisk(); err != nil {
		t.Skipf("no file system that fails can be mounted here: %v", err)
	}
	torment(t, []kind{killServer, slowDisk, failDisk, killShim}, 8)
}

// What is acknowledged survives a machine that loses its power: the disk was told to keep it before.
//
// spec: DEL-13
func TestRootAcknowledgedIsSynced(t *testing.T) {
	if err := needDisk(); err != nil {
		t.Skipf("no file system that counts can be mounted here: %v", err)
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
	s := launch(t, top, filepath.Join(mount, "data"), 0)
	defer s.kill()
	if err := s.untilReady(); err != nil {
		t.Fatalf("%v\n%s", err, s.stderr.tail())
	}
	c, err := dial(t.Context(), filepath.Join(mount, "data"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range 10 {
		before := d.synced.Load()
		_, err := c.ConfigMaps.Create(t.Context(), &corev1rpc.CreateConfigMapRequest{
			Namespace: "default",
			Object:    &corev1.ConfigMap{Metadata: &metav1.ObjectMeta{Name: "m" + strconv.Itoa(i)}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if d.synced.Load() == before {
			t.Errorf("write %d was acknowledged before the disk was asked to keep it", i)
		}
	}
}
