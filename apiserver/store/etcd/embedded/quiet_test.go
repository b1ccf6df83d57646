package embedded

import (
	"bytes"
	"fmt"
	"runtime/metrics"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// startSoon starts a server in a synctest bubble, where disks take no time, and fails unless it is elected within the
// few ticks that this takes, and writes and reads without waiting for one more.
func startSoon(t *testing.T, dir string) *Embedded {
	t.Helper()
	began := time.Now()
	e := start(t, Config{Dir: dir, UnsafeNoFsync: true})
	if d, most := time.Since(began), 2*electionTicks*tick; d > most {
		t.Errorf("the start took %v", d)
	}
	began = time.Now()
	if _, err := put(t.Context(), e, "k", nil); err != nil {
		t.Fatal(err)
	}
	// It is linearizable, so that etcd asks raft how far the log is.
	if resp, err := e.Range(t.Context(), &etcdserverpb.RangeRequest{Key: []byte("k")}); err != nil ||
		len(resp.GetKvs()) != 1 {
		t.Fatal(resp, err)
	}
	if d := time.Since(began); d > 0 {
		t.Errorf("a write and a read took %v", d)
	}
	return e
}

func closeServer(t *testing.T, e *Embedded) {
	t.Helper()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

// Nobody waits for the slow clock, however the server comes to its log: by itself, by replaying all of it, by
// replaying what is newer than a snapshot, or by Restore.
func TestElection(t *testing.T) {
	dir, restored := t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		closeServer(t, startSoon(t, dir))
		e := startSoon(t, dir)
		for i := range snapshotCount + 10 {
			if _, err := put(t.Context(), e, fmt.Sprint("k", i), nil); err != nil {
				t.Fatal(err)
			}
		}
		var snapshot bytes.Buffer
		if err := e.Snapshot(t.Context(), &snapshot); err != nil {
			t.Fatal(err)
		}
		closeServer(t, e)
		closeServer(t, startSoon(t, dir))

		began := time.Now()
		if err := Restore(t.Context(), restored, &snapshot, nil); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d > 2*electionTicks*tick {
			t.Errorf("restore took %v", d)
		}
		for range 2 {
			closeServer(t, startSoon(t, restored))
		}
	})
}

// A server that has nothing to do is hardly ever awake.
func TestQuiet(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		e := startSoon(t, dir)
		before := wakeUps()
		time.Sleep(time.Hour)
		perSecond := float64(wakeUps()-before) / time.Hour.Seconds()
		t.Logf("%.1f goroutines wake up in a second", perSecond)
		// Ten are for etcd's look for watchers that are behind, which cannot be set, and two for its look for leases.
		if perSecond > 40 {
			t.Error("that is too many")
		}
		if _, err := put(t.Context(), e, "k", nil); err != nil {
			t.Errorf("after an hour: %v", err)
		}
	})
}

// wakeUps returns how often goroutines of this process have been scheduled, about: the runtime counts every eighth
// time.
func wakeUps() uint64 {
	const counted = 8
	latencies := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	metrics.Read(latencies)
	var n uint64
	for _, count := range latencies[0].Value.Float64Histogram().Counts {
		n += count
	}
	return n * counted
}

// Leases end when they should, also when the server was started anew meanwhile, which gives them their whole time
// again.
// spec: OBJ-13
func TestLeasesEnd(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		const ttl = time.Minute
		e := startSoon(t, dir)
		grant := func(key string) time.Time {
			id, err := e.Grant(t.Context(), int64(ttl/time.Second))
			if err == nil {
				_, err = e.Txn(t.Context(), &etcdserverpb.TxnRequest{Success: []*etcdserverpb.RequestOp{{
					Request: &etcdserverpb.RequestOp_RequestPut{RequestPut: &etcdserverpb.PutRequest{Key: []byte(key), Lease: id}},
				}}})
			}
			if err != nil {
				t.Fatal(err)
			}
			return time.Now()
		}
		ends := func(key string, granted time.Time) {
			t.Helper()
			for {
				resp, err := e.Range(t.Context(), &etcdserverpb.RangeRequest{Key: []byte(key)})
				if err != nil {
					t.Fatal(err)
				}
				lived := time.Since(granted)
				switch {
				case len(resp.GetKvs()) == 0 && lived < ttl, lived > ttl+3*time.Second:
					t.Fatalf("%s lived %v", key, lived)
				case len(resp.GetKvs()) == 0:
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		}
		ends("a", grant("a"))
		grant("b")
		time.Sleep(ttl / 2)
		closeServer(t, e)
		e = startSoon(t, dir)
		ends("b", time.Now())
	})
}
