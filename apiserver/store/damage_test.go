package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"monoplane.dev/internal/dirlock"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

func foreignPut() *etcdserverpb.TxnRequest {
	return &etcdserverpb.TxnRequest{Success: []*etcdserverpb.RequestOp{putOp([]byte("/elsewhere/key"), []byte("x"), 0)}}
}

// filled returns a data directory with n pods in it, written by a store that is closed.
func filled(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	s, err := Open(t.Context(), testConfig(dir))
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		p := benchPod(fmt.Sprintf("p%05d", i))
		create(t, s, p)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func wantRefused(t *testing.T, dir string, words ...string) {
	t.Helper()
	s, err := Open(context.Background(), testConfig(dir))
	if err == nil {
		s.Close()
		t.Fatal("opened")
	}
	text := err.Error()
	t.Log(text)
	if strings.Contains(text, "\n") || strings.Contains(text, "goroutine") {
		t.Errorf("not one line: %s", text)
	}
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q does not say %q", text, w)
		}
	}
}

// overwrite replaces the bytes of a file at offset.
func overwrite(t *testing.T, path string, offset int64, b []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, offset); err != nil {
		t.Fatal(err)
	}
}

func dbFile(dir string) string { return filepath.Join(dir, "member", "snap", "db") }

func walFiles(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	slices.Sort(names)
	return names
}

// used returns how many bytes of a log file are written.
func used(t *testing.T, path string) int64 {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return int64(len(bytes.TrimRight(b, "\x00")))
}

// spec: DEL-13
func TestDamagedLog(t *testing.T) {
	garbage := bytes.Repeat([]byte{0xa5, 0x3c}, 512)
	zeros := make([]byte, 4096)
	for name, c := range map[string]struct {
		at    func(used int64) int64
		bytes []byte
	}{
		"garbage in the middle": {func(n int64) int64 { return n / 2 }, garbage},
		"garbage at the start":  {func(int64) int64 { return 0 }, garbage},
		"zeros in the middle":   {func(n int64) int64 { return n / 2 }, zeros},
		"zeros near the end":    {func(n int64) int64 { return n - 9000 }, zeros},
		"one byte":              {func(n int64) int64 { return n / 2 }, []byte{0x77}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filled(t, 300)
			file := walFiles(t, dir)[len(walFiles(t, dir))-1]
			overwrite(t, file, c.at(used(t, file)), c.bytes)
			wantRefused(t, dir, "log")
		})
	}
	t.Run("truncated", func(t *testing.T) {
		dir := filled(t, 300)
		file := walFiles(t, dir)[len(walFiles(t, dir))-1]
		if err := os.Truncate(file, used(t, file)/2); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, dir, "log", "missing")
	})
	t.Run("gone", func(t *testing.T) {
		dir := filled(t, 300)
		if err := os.RemoveAll(filepath.Join(dir, "member", "wal")); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, dir, "no log")
	})
}

// A write that was cut off in the middle was never acknowledged, and stops nobody.
// spec: DEL-13
func TestTornWrite(t *testing.T) {
	dir := filled(t, 50)
	file := walFiles(t, dir)[0]
	end := used(t, file)
	// A length without the record it announces, up to the next sector.
	torn := make([]byte, 512)
	torn[0], torn[1] = 0xf0, 0x03
	copy(torn[8:], "\x08\x02\x10\x99")
	overwrite(t, file, (end+7)/8*8, torn)
	s := open(t, testConfig(dir))
	if n := len(list(t, s, ListOptions{}).Objects); n != 50 {
		t.Errorf("%d pods", n)
	}
}

// spec: DEL-13
func TestDamagedDatabase(t *testing.T) {
	junk := bytes.Repeat([]byte("junk"), 1024)
	for name, at := range map[string]int64{"header": 0, "second header": 4096, "both headers": -1} {
		t.Run(name, func(t *testing.T) {
			dir := filled(t, 300)
			if at < 0 {
				overwrite(t, dbFile(dir), 0, append(junk, junk...))
			} else {
				overwrite(t, dbFile(dir), at, junk)
			}
			wantRefused(t, dir, "database", "header")
		})
	}
	t.Run("data page", func(t *testing.T) {
		dir := filled(t, 300)
		refused := 0
		original, err := os.ReadFile(dbFile(dir))
		if err != nil {
			t.Fatal(err)
		}
		// Some pages are free; at least most others must be found.
		pages := int64(len(original)) / 4096
		total := 0
		for page := int64(2); page < pages; page += 7 {
			if bytes.Count(original[page*4096:(page+1)*4096], []byte{0}) == 4096 {
				continue
			}
			total++
			damaged := bytes.Clone(original)
			copy(damaged[page*4096:], junk)
			if err := os.WriteFile(dbFile(dir), damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := Open(context.Background(), testConfig(dir))
			if err != nil {
				if refused++; strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "database") {
					t.Errorf("page %d: %v", page, err)
				}
				continue
			}
			if n := len(list(t, s, ListOptions{}).Objects); n != 300 {
				t.Errorf("page %d: opened with %d pods", page, n)
			}
			s.Close()
		}
		t.Logf("refused %d of %d damaged pages", refused, total)
		if refused < total/2 {
			t.Error("hardly any damage was found")
		}
	})
	t.Run("one byte of a value", func(t *testing.T) {
		dir := filled(t, 300)
		b, err := os.ReadFile(dbFile(dir))
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; ; {
			i := bytes.Index(b[at:], []byte("registry.example.com/web"))
			if i < 0 {
				break
			}
			at += i + 1
			b[at] ^= 1
		}
		if err := os.WriteFile(dbFile(dir), b, 0o600); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, dir, "database", "damaged")
	})
	t.Run("truncated", func(t *testing.T) {
		dir := filled(t, 300)
		if err := os.Truncate(dbFile(dir), 20*4096); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, dir, "database")
	})
	t.Run("older than the log", func(t *testing.T) {
		dir := filled(t, 10)
		old, err := os.ReadFile(dbFile(dir))
		if err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), testConfig(dir))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3000 {
			create(t, s, pod("later", fmt.Sprint(i)))
		}
		s.Close()
		if err := os.WriteFile(dbFile(dir), old, 0o600); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, dir, "database")
	})
	t.Run("gone", func(t *testing.T) {
		dir := filled(t, 2000)
		if err := os.Remove(dbFile(dir)); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, dir, "database", "missing")
	})
}

func TestLockedDirectory(t *testing.T) {
	dir := t.TempDir()
	s := open(t, testConfig(dir))
	wantRefused(t, dir, dir, "in use by process", fmt.Sprint(os.Getpid()))
	_, err := Open(t.Context(), testConfig(dir))
	var inUse *dirlock.InUseError
	if !errors.As(err, &inUse) || inUse.PID != os.Getpid() {
		t.Errorf("%v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, testConfig(dir))
}

func TestUnusableDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, file, "data directory")
	_, err := Open(t.Context(), Config{})
	if err == nil {
		t.Error("opened nothing")
	}
}

func TestNewerData(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(t.Context(), testConfig(dir))
	if err != nil {
		t.Fatal(err)
	}
	put := func(value string) {
		_, err := s.client.Txn(t.Context(), &etcdserverpb.TxnRequest{
			Success: []*etcdserverpb.RequestOp{putOp([]byte(versionKey), []byte(value), 0)},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	put(fmt.Sprint(dataVersion + 1))
	s.Close()
	wantRefused(t, dir, "newer version", fmt.Sprint(dataVersion+1))
}
