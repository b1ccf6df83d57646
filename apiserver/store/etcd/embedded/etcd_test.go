package embedded

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"monoplane.dev/apiserver/store/etcd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t testing.TB, cfg Config) *Embedded {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	e, err := Start(t.Context(), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func put(ctx context.Context, e etcd.Client, key string, value []byte) (int64, error) {
	resp, err := e.Txn(ctx, &etcdserverpb.TxnRequest{Success: []*etcdserverpb.RequestOp{{
		Request: &etcdserverpb.RequestOp_RequestPut{RequestPut: &etcdserverpb.PutRequest{Key: []byte(key), Value: value}},
	}}})
	return resp.GetHeader().GetRevision(), err
}

func TestStartAndClose(t *testing.T) {
	dir := t.TempDir()
	for i := range 3 {
		e := start(t, Config{Dir: dir})
		rev, err := put(t.Context(), e, fmt.Sprint("k", i), nil)
		if err != nil || rev != int64(i+2) {
			t.Fatalf("revision %d, %v", rev, err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := put(t.Context(), e, "k", nil); !errors.Is(err, etcd.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}, nil); !errors.Is(err,
		context.Canceled) {
		t.Errorf("started although canceled: %v", err)
	}
}

// A very first start that is interrupted anywhere does not keep the next one from making what is missing: also when
// the log was made, but nothing written to it. A database that has been written to is not given up for that.
func TestFirstStartIsInterrupted(t *testing.T) {
	for name, tc := range map[string]struct {
		log      bool
		database func(tx *bbolt.Tx) error // nil for none
		refused  string
	}{
		"a database":                    {false, func(*bbolt.Tx) error { return nil }, ""},
		"an empty log":                  {true, nil, ""},
		"both":                          {true, func(*bbolt.Tx) error { return nil }, ""},
		"a database that was written":   {false, written, "there is a database but no log"},
		"and the log has lost its text": {true, written, "the log in .* is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.MkdirAll(filepath.Join(dir, "member", "snap"), 0o700); err != nil {
				t.Fatal(err)
			}
			if tc.log { // as etcd begins: the file says whose it is
				metadata, err := proto.Marshal(&etcdserverpb.Metadata{NodeID: proto.Uint64(1), ClusterID: proto.Uint64(2)})
				if err != nil {
					t.Fatal(err)
				}
				w, err := wal.Create(zap.NewNop(), filepath.Join(dir, "member", "wal"), metadata)
				if err == nil {
					err = w.Close()
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if tc.database != nil {
				db, err := bbolt.Open(filepath.Join(dir, "member", "snap", "db"), 0o600, nil)
				if err == nil {
					err = errors.Join(db.Update(tc.database), db.Close())
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if tc.refused != "" {
				_, err := Start(t.Context(), Config{Dir: dir, Logger: slog.New(slog.DiscardHandler)}, nil)
				if err == nil || !regexp.MustCompile(tc.refused).MatchString(err.Error()) {
					t.Errorf("%v, want %q", err, tc.refused)
				}
				return
			}
			for range 2 {
				e := start(t, Config{Dir: dir})
				if _, err := put(t.Context(), e, "k", nil); err != nil {
					t.Fatal(err)
				}
				if err := e.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// written leaves what etcd leaves of a write.
func written(tx *bbolt.Tx) error {
	b, err := tx.CreateBucketIfNotExists([]byte("key"))
	if err != nil {
		return err
	}
	return b.Put([]byte("\x00\x00\x00\x00\x00\x00\x00\x02_\x00\x00\x00\x00\x00\x00\x00\x00"), nil)
}

// The log stays small: segments of 4 MB, and no more of them than needed.
func TestDiskUse(t *testing.T) {
	dir := t.TempDir()
	e := start(t, Config{Dir: dir, UnsafeNoFsync: true})
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	var total int64
	err := filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			total += info.Size()
		}
		return err
	})
	if err != nil || total > 10<<20 {
		t.Errorf("%d bytes, %v", total, err)
	}
}

func TestErrors(t *testing.T) {
	e := start(t, Config{Dir: t.TempDir(), UnsafeNoFsync: true})
	var rev int64
	for range 5 {
		rev, _ = put(t.Context(), e, "k", nil)
	}
	if err := e.Compact(t.Context(), rev-1); err != nil {
		t.Fatal(err)
	}
	read := func(rev int64) error {
		_, err := e.Range(t.Context(), &etcdserverpb.RangeRequest{Key: []byte("k"), Revision: rev})
		return err
	}
	if err := read(2); !errors.Is(err, etcd.ErrCompacted) {
		t.Error(err)
	}
	if err := read(rev + 1); !errors.Is(err, etcd.ErrFutureRevision) {
		t.Error(err)
	}
	if err := e.Compact(t.Context(), 2); !errors.Is(err, etcd.ErrCompacted) {
		t.Error(err)
	}
	if _, err := put(t.Context(), e, "k", make([]byte, etcd.MaxRequestBytes)); !errors.Is(err, etcd.ErrTooLarge) {
		t.Error(err)
	}
	w, err := e.Watch(t.Context(), "k", 2)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.Recv(t.Context()); !errors.Is(err, etcd.ErrCompacted) {
		t.Error(err)
	}
}

func TestFatalErrors(t *testing.T) {
	for name, end := range map[string]func(lg *zap.Logger){
		"fatal": func(lg *zap.Logger) { lg.Fatal("it broke", zap.String("path", "x"), zap.Error(errors.New("no space"))) },
		"panic": func(lg *zap.Logger) { lg.Panic("it broke", zap.Error(errors.New("no space"))) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFailure()
			after := false
			done := make(chan struct{})
			go func() {
				defer close(done)
				end(newZap(slog.New(slog.DiscardHandler), f))
				after = true
			}()
			<-done
			if err := f.get(); err == nil || err.Error() != "etcd: it broke: no space" || after {
				t.Errorf("%v, went on %v", err, after)
			}
		})
	}
}

// Why a log that ends in half a record cannot be mended is part of the error. A server that fails so would leave
// goroutines behind.
//
// spec: DEL-13
func TestNotRepaired(t *testing.T) {
	dir := t.TempDir()
	half := filepath.Join(dir, "0000000000000000-0000000000000000.wal")
	if err := os.WriteFile(half, append(binary.LittleEndian.AppendUint64(nil, 100), "half"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(half+".broken", 0o700); err != nil { // Its copy would go there.
		t.Fatal(err)
	}
	f := newFailure()
	done := make(chan struct{})
	go func() {
		defer close(done)
		lg := newZap(slog.New(slog.DiscardHandler), f)
		lg.Warn("earlier", zap.Error(io.ErrShortWrite))
		if !wal.Repair(lg, dir) {
			lg.Fatal("failed to repair WAL", zap.Error(io.ErrUnexpectedEOF))
		}
	}()
	<-done
	if err := f.get(); !errors.Is(err, io.ErrUnexpectedEOF) || !errors.Is(err, syscall.EISDIR) ||
		errors.Is(err, io.ErrShortWrite) {
		t.Errorf("the error is %v; want %v", err, syscall.EISDIR)
	}
}

func TestLog(t *testing.T) {
	var out strings.Builder
	lg := newZap(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})), newFailure())
	lg.With(zap.Int("a", 1)).Info("hello", zap.String("b", "x y"))
	lg.Debug("hidden")
	if s := out.String(); !strings.Contains(s, `level=DEBUG msg=hello component=etcd`) ||
		!strings.Contains(s, `b="x y"`) ||
		!strings.Contains(s, "a=1") || strings.Contains(s, "hidden") {
		t.Error(s)
	}
}

// Whatever bytes are destroyed, the check of the database ends with an error or none, but does not panic.
func TestCheckNeverPanics(t *testing.T) {
	dir := t.TempDir()
	e := start(t, Config{Dir: dir, UnsafeNoFsync: true})
	for i := range 400 {
		if _, err := put(t.Context(), e, fmt.Sprint("key", i), make([]byte, i%7*1000)); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	sound, err := os.ReadFile(filepath.Join(dir, "member", "snap", "db"))
	if err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	path := filepath.Join(t.TempDir(), "db")
	found := 0
	for range 300 {
		b := append([]byte(nil), sound...)
		for range 1 + random.IntN(4) {
			at := random.IntN(len(b))
			// Most of the structure is at the beginning of pages.
			if random.IntN(2) == 0 {
				at = at/4096*4096 + random.IntN(64)
			}
			for i := at; i < min(len(b), at+1+random.IntN(8)); i++ {
				b[i] = byte(random.Uint32())
			}
		}
		if random.IntN(10) == 0 {
			b = b[:random.IntN(len(b))]
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := checkDB(path, time.Minute, nil); err != nil {
			found++
		}
	}
	t.Logf("found %d of 300 damaged files", found)
	if found < 50 {
		t.Error("hardly any damage was found")
	}
}

// BenchmarkStart is the part of a cold start that is etcd's.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		dir := b.TempDir()
		b.StartTimer()
		e, err := Start(b.Context(), Config{Dir: dir, Logger: slog.New(slog.DiscardHandler)}, nil)
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		e.Close()
		b.StartTimer()
	}
}
