//go:build rootonly

package crash

import (
	"os"
	"path/filepath"
	"slices"
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

// What is acknowledged survives a machine that loses its power: the disk was told to keep it before. So do the files
// that server and agent keep for themselves, of which each is whole on the disk before it takes the place of another,
// and the end of a container before anybody hears of it.
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
	w, err := c.Pods.Watch(t.Context(), &metav1.WatchRequest{Namespace: "default"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Pods.Create(t.Context(), &corev1rpc.CreatePodRequest{Namespace: "default", Object: &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: "ends"},
		Spec: &corev1.PodSpec{RestartPolicy: "Never", Containers: []*corev1.Container{
			{Name: "main", Image: "host", Command: []string{"true"}},
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for phase := ""; phase != "Succeeded"; {
		batch, err := w.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range batch.GetEvents() {
			phase = e.GetObject().GetStatus().GetPhase()
		}
	}
	// These are about processes, which a power failure ends, or are made anew when they are not there.
	passing := []string{"config", "etc-hosts", "hostname", "lock", "resolv.conf", "resources", "sandbox", "shim",
		"up.json", "volumes.json"}
	lost := d.forgets(func(path string) bool { return !slices.Contains(passing, filepath.Base(path)) })
	if len(lost) > 0 {
		t.Errorf("not as they are after a power failure: %q", lost)
	}
}
