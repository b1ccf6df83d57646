package e2e_test

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pod writes as fast as it can, 150 MB or as many as MONOPLANE_FLOOD says: rotation leaves what is bounded on the
// disk, the end of it can be read, and its neighbour goes on. spec: CTR-8
func TestBadLogFlood(t *testing.T) {
	t.Parallel()
	const (
		files, size = 5, 10 << 20
		most        = files * 2 * size
	)
	flood, err := strconv.Atoi(cmp.Or(os.Getenv("MONOPLANE_FLOOD"), "150"))
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, "--node-name", "node")
	p := c.pods(t, "default")
	before := p.run(t, sleeper("neighbour"))
	greedy := podOf("greedy", fmt.Sprintf(
		`head -c %d000000 /dev/zero | tr '\0' x | fold -w 8000; while :; do echo; echo over; sleep 0.2; done`, flood))
	p.create(t, greedy)
	dir := filepath.Join(c.dir, "nodes", "node", "logs")
	peak := int64(0)
	eventually(t, "the end of the flood, and little on the disk", func() (bool, string) {
		used := onDisk(t, dir)
		peak = max(peak, used)
		one := int64(1)
		end, err := p.GetLogs("greedy", &corev1.PodLogOptions{TailLines: &one}).DoRaw(t.Context())
		return err == nil && string(end) == "over\n" && used < most, fmt.Sprintf("%d bytes; %.40q, %v", used, end, err)
	})
	t.Logf("at most %d MiB of %d MB were on the disk, and in the end %d MiB", peak>>20, flood, onDisk(t, dir)>>20)
	now, err := p.Get(t.Context(), "neighbour", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if was, is := before.Status.ContainerStatuses[0], now.Status.ContainerStatuses[0]; is.State.Running == nil ||
		is.ContainerID != was.ContainerID || is.RestartCount != 0 {
		t.Errorf("the neighbour: %+v", is)
	}
}

// onDisk returns how many bytes the logs below dir have on the disk.
func onDisk(t *testing.T, dir string) (total int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		var info syscall.Stat_t
		if err == nil && strings.Contains(filepath.Base(path), ".log") && syscall.Stat(path, &info) == nil {
			total += info.Blocks * 512
		}
		return nil // what is gone meanwhile has no room
	})
	if err != nil {
		t.Fatal(err)
	}
	return total
}
