package embedded

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

// What is written is in the database a second later, and at once when it is large.
func TestBatches(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		e := startSoon(t, dir)
		used := func() int64 {
			synctest.Wait()
			_, used := e.Size()
			return used
		}
		large := bytes.Repeat([]byte{1}, 1<<20)
		time.Sleep(2 * batchInterval)
		begin := used()
		if _, err := put(t.Context(), e, "a", large); err != nil {
			t.Fatal(err)
		}
		if got := used(); got != begin {
			t.Fatalf("one write of a megabyte is in the database at once: it has grown by %d bytes", got-begin)
		}
		if _, err := put(t.Context(), e, "b", large); err != nil {
			t.Fatal(err)
		}
		if got := used(); got-begin < batchBytes*9/10 { // a few pages become free at the same time
			t.Errorf("after two megabytes the database has grown by %d bytes, want both", got-begin)
		}
		begin = used()
		if _, err := put(t.Context(), e, "c", large); err != nil {
			t.Fatal(err)
		}
		time.Sleep(batchInterval)
		if got := used(); got-begin < batchBytes*9/20 {
			t.Errorf("a second later the database has grown by %d bytes, want a megabyte", got-begin)
		}
	})
}
