package embedded

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"monoplane.dev/internal/pages"
)

// The pages of a database are released while it is written and defragmented, which maps it anew: nothing is lost,
// nobody waits for ever, and it is mapped where it was as long as its addresses are being used.
func TestReleasePagesOfADatabaseThatMoves(t *testing.T) {
	e := start(t, Config{Dir: t.TempDir(), UnsafeNoFsync: true})
	value := bytes.Repeat([]byte("x"), 100<<10)
	const n = 50
	done := make(chan error, 1)
	go func() {
		for i := range n {
			rev, err := put(t.Context(), e, fmt.Sprint("k", i), value)
			if err == nil && i%10 == 0 {
				err = e.Relieve(t.Context(), rev)
			}
			if err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for over := false; !over; {
		if err := e.ReleasePages(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			over = true
		default:
		}
	}
	for i := range n {
		resp, err := e.Range(t.Context(), &etcdserverpb.RangeRequest{Key: []byte(fmt.Sprint("k", i))})
		if err != nil || len(resp.Kvs) != 1 || !bytes.Equal(resp.Kvs[0].Value, value) {
			t.Fatalf("value %d: %v", i, err)
		}
	}

	mapped := func() (inode string) {
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(maps)) {
			if m, err := pages.Parse(line); err == nil && m.Path == e.srv.Cfg.BackendPath() {
				inode = strings.Fields(line)[4]
			}
		}
		return inode
	}
	before := mapped()
	held := make(chan struct{})
	inside := make(chan string)
	go func() {
		_ = e.pinned(t.Context(), func() error {
			inside <- mapped()
			<-held
			inside <- mapped()
			return nil
		})
	}()
	if now := <-inside; now != before {
		t.Errorf("file %s is mapped, was %s", now, before)
	}
	relieved := make(chan error, 1)
	go func() { relieved <- e.Relieve(context.Background(), 1) }()
	if !waits(t, func(ctx context.Context) error {
		select {
		case err := <-relieved:
			relieved <- err
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}) {
		t.Error("the database was defragmented while its addresses were in use")
	}
	close(held)
	if now := <-inside; now != before || before == "" {
		t.Errorf("file %s is mapped, was %q", now, before)
	}
	if err := <-relieved; err != nil {
		t.Fatal(err)
	}
	if mapped() == before {
		t.Error("defragmenting does not map the database anew, and the test shows nothing")
	}
}
