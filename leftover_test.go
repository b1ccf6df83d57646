package monoplane_test

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"monoplane.dev"
)

// Clusters that have come and gone leave nothing in the process, however many there were.
func TestClustersLeaveNothingBehind(t *testing.T) {
	const rounds, perCluster = 8, 8 << 10 // bytes; the descriptions of all services took 15 KB
	run := func() int64 {
		c, err := monoplane.Start(t.Context(), monoplane.Config{
			DataDir: t.TempDir(), Runtime: monoplane.FakeRuntime(), NodeName: "node", Nodes: 2, UnsafeNoFsync: true,
			Listen: "127.0.0.1:0", GRPCListen: "127.0.0.1:0",
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.WaitReady(t.Context()), c.Stop(context.Background())); err != nil {
			t.Fatal(err)
		}
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	run()
	after := run() // what is made once has been made
	// What a cluster leaves is there each time; what a busy machine has not put away yet when it is measured is not.
	for try := range 3 {
		before := after
		for range rounds {
			after = run()
		}
		left := (after - before) / rounds
		t.Logf("try %d: each of %d clusters leaves %d bytes behind", try, rounds, left)
		if left <= perCluster {
			return
		}
	}
	t.Errorf("clusters leave more than %d bytes behind each time", perCluster)
}
