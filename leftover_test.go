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
	before := run() // what is made once has been made
	var after int64
	for range rounds {
		after = run()
	}
	t.Logf("%d bytes more after %d clusters", after-before, rounds)
	if after-before > rounds*perCluster {
		t.Errorf("each cluster leaves %d bytes behind", (after-before)/rounds)
	}
}
