package etcd

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sys/unix"
)

// The pages of one file leave the process, what is in them does not change, and other memory is left alone.
func TestReleasePages(t *testing.T) {
	const size = 1 << 20
	mapped := map[string][]byte{}
	for _, name := range []string{"db", "other"} {
		path := filepath.Join(t.TempDir(), "a name with spaces", name)
		if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, bytes.Repeat([]byte(name+" "), size/len(name)), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		data, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Munmap(data)
		mapped[path] = data
	}
	for path, data := range mapped {
		if kb := residentKB(t, path); kb != size>>10 {
			t.Fatalf("%s: %d KB are resident at first", path, kb)
		}
		if filepath.Base(path) != "db" {
			continue
		}
		if err := releasePages(path); err != nil {
			t.Fatal(err)
		}
		if kb := residentKB(t, path); kb != 0 {
			t.Errorf("%d KB are still resident", kb)
		}
		if want := bytes.Repeat([]byte("db "), size/2)[:size]; !bytes.Equal(data, want) {
			t.Error("the content has changed")
		}
	}
	for path := range mapped {
		if filepath.Base(path) == "other" && residentKB(t, path) != size>>10 {
			t.Error("another file was released, too")
		}
	}
}

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
			if m, err := parseMapping(line); err == nil && m.path == e.srv.Cfg.BackendPath() {
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

func TestParseMapping(t *testing.T) {
	for line, want := range map[string]mapping{
		"7f0000001000-7f0000003000 r--s 00000000 fd:01 1234                       /a/b c/db\n": {0x7f0000001000,
			0x7f0000003000, true, "/a/b c/db"},
		"c000000000-c000400000 rw-p 00000000 00:00 0 \n": {0xc000000000, 0xc000400000,
			false, ""},
		"1000-2000 r--p 00000000 fd:01 7 /a\\012b\n": {0x1000, 0x2000, false,
			"/a\nb"},
	} {
		if m, err := parseMapping(line); err != nil || m != want {
			t.Errorf("%q: %+v, %v, want %+v", line, m, err, want)
		}
	}
	for _, line := range []string{"", "x", "1000 r--s 0 0 0 /a", "2000-1000 r--s 0 0 0 /a", "1000-2000 r 0 0 0 /a",
		"zz-yy r--s 0 0 0 /a"} {
		if m, err := parseMapping(line); err == nil {
			t.Errorf("%q is read as %+v", line, m)
		}
	}
}

// residentKB is how much of a mapped file is resident.
func residentKB(t *testing.T, path string) (kb int) {
	t.Helper()
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(smaps), path+"\n")
	if !ok {
		t.Fatalf("%s is not mapped", path)
	}
	_, rest, _ = strings.Cut(rest, "\nRss:")
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		t.Fatal(err)
	}
	return kb
}
