package store

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/object"
)

func liveHeap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Hundreds of updates and deletions of objects of 0.9 MB leave no more in memory than the history may keep and what
// etcd needs: the watch history, etcd's log and its database are each bounded in bytes.
func TestLargeWritesLeaveLittleBehind(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.OnMutation = nil
	s := open(t, cfg)
	before := liveHeap()
	write := func(name string, i int) {
		key := Key{corev1.ConfigMapKind, "default", name}
		if _, err := s.Mutate(t.Context(), key, func(object.Object) (*Txn, error) {
			return &Txn{Ops: []Op{{Key: key, Object: &corev1.ConfigMap{
				Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name},
				Data:     map[string]string{"a": strings.Repeat(fmt.Sprintf("%08d ", i), 100_000)},
			}}}}, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 200 {
		write("a", i)
	}
	for i := range 100 {
		write(fmt.Sprint("b", i), i)
		remove(t, s, Key{corev1.ConfigMapKind, "default", fmt.Sprint("b", i)})
	}
	const most = 8<<20 + logBytes + 24<<20
	deadline := time.Now().Add(time.Minute)
	held := liveHeap() - before
	for (held > most || s.compacted.Load() == 0) && time.Now().Before(deadline) {
		// etcd keeps the values of one commit until those of later ones take their places: there are always heartbeats.
		create(t, s, pod("default", fmt.Sprint("p", time.Now().UnixNano())))
		held = liveHeap() - before
	}
	t.Logf("%d MB are held", held>>20)
	if held > most {
		t.Errorf("%d bytes are held", held)
	}
	if s.compacted.Load() == 0 {
		t.Error("etcd's history was not compacted")
	}
	write("a", 0) // and all goes on
}
