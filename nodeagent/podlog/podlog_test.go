package podlog

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

const sample = "2026-01-01T00:00:01Z stdout F one\n" +
	"2026-01-01T00:00:02Z stderr F two\n" +
	"this is not a line of a log\n" +
	"2026-01-01T00:00:03Z stdout P thr\n" +
	"2026-01-01T00:00:03.5Z stdout F ee\n" +
	"2026-01-01T00:00:04Z stdout F \n" +
	"2026-01-01T00:00:05Z stdout F five\n"

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func never() bool { return false }

// spec: CTR-8
func TestRead(t *testing.T) {
	path := write(t, sample)
	all := Options{Tail: -1, Limit: -1}
	for name, c := range map[string]struct {
		edit func(*Options)
		want string
	}{
		"all":       {func(*Options) {}, "one\ntwo\nthree\n\nfive\n"},
		"tail":      {func(o *Options) { o.Tail = 2 }, "\nfive\n"},
		"tail 0":    {func(o *Options) { o.Tail = 0 }, ""},
		"tail many": {func(o *Options) { o.Tail = 100 }, "one\ntwo\nthree\n\nfive\n"},
		"limit":     {func(o *Options) { o.Limit = 6 }, "one\ntw"},
		"limit 0":   {func(o *Options) { o.Limit = 0 }, ""},
		"stderr":    {func(o *Options) { o.Stream = "stderr" }, "two\n"},
		"since":     {func(o *Options) { o.Since = time.Date(2026, 1, 1, 0, 0, 4, 0, time.UTC) }, "\nfive\n"},
		"timestamps": {func(o *Options) { o.Timestamps, o.Tail = true, 4 },
			"2026-01-01T00:00:03.000000000Z three\n2026-01-01T00:00:04.000000000Z \n" +
				"2026-01-01T00:00:05.000000000Z five\n"},
	} {
		t.Run(name, func(t *testing.T) {
			o := all
			c.edit(&o)
			var got strings.Builder
			if err := Read(t.Context(), path, o, never, func(b []byte) error { got.Write(b); return nil }); err != nil {
				t.Fatal(err)
			}
			if got.String() != c.want {
				t.Errorf("got %q, want %q", got.String(), c.want)
			}
		})
	}
}

// Right after a rotation the last lines are still those that were written last, also while there is no new file yet.
// spec: CTR-8
func TestTailAfterRotation(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(dir, "0.log")
		tail := func(n int64) string {
			var got strings.Builder
			if err := Read(t.Context(), path, Options{Tail: n, Limit: -1}, never,
				func(b []byte) error { got.Write(b); return nil }); err != nil {
				t.Error(err)
			}
			return strings.ReplaceAll(got.String(), "\n", " ")
		}
		for _, lines := range []string{"a b c", "d", ""} {
			var text strings.Builder
			for line := range strings.FieldsSeq(lines) {
				text.WriteString("2026-01-01T00:00:01Z stdout F " + line + "\n")
			}
			if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			if lines == "" {
				break
			}
			if err := Rotate(path, 1, 9, time.Now(), func() error { return nil }); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Nanosecond) // files moved aside are named by the time
		}
		same := func(when string) {
			for n, want := range map[int64]string{-1: "", 0: "", 1: "d ", 2: "c d ", 4: "a b c d ", 99: "a b c d "} {
				if got := tail(n); got != want {
					t.Errorf("%s the last %d lines are %q, want %q", when, n, got, want)
				}
			}
		}
		same("in an empty file")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		same("without a file")
		if got := Last(path, 2, 3); got != "\nd\n" {
			t.Errorf("the end is %q", got)
		}
	})
}

// A log that is written, rotated and ended while it is followed is read whole.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(dir, "0.log")
		var running atomic.Bool
		running.Store(true)
		var got strings.Builder
		done := make(chan error, 1)
		go func() {
			done <- Read(t.Context(), path, Options{Follow: true, Tail: 1, Limit: -1}, running.Load,
				func(b []byte) error { got.Write(b); return nil })
		}()
		time.Sleep(time.Second) // the file is not there yet
		var want strings.Builder
		add := func(text string) {
			f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			if _, err := f.WriteString(text); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 100 {
			if i%30 == 29 {
				if err := Rotate(path, 1, 2, time.Now(), func() error { return nil }); err != nil {
					t.Fatal(err)
				}
			}
			line := fmt.Sprintf("2026-01-01T00:00:01Z stdout F line %d", i)
			add(line[:20])
			time.Sleep(150 * time.Millisecond)
			add(line[20:] + "\n")
			fmt.Fprintf(&want, "line %d\n", i)
			time.Sleep(150 * time.Millisecond)
		}
		add("2026-01-01T00:00:01Z stdout F last\n")
		running.Store(false)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if got.String() != want.String()+"last\n" {
			t.Errorf("got %q", got.String())
		}
	})
}

// A reader that is slower than the rotation reads all that is kept, and what was written to a file after it was moved
// aside. spec: CTR-8
func TestFollowIsOvertaken(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(dir, "0.log")
		add := func(file, line string) {
			t.Helper()
			f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteString("2026-01-01T00:00:01Z stdout F " + line + "\n"); err != nil {
				t.Fatal(err)
			}
		}
		rotate := func(keep int) {
			t.Helper()
			if err := Rotate(path, 1, keep, time.Now(), func() error { return nil }); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Nanosecond) // files moved aside are named by the time
		}
		add(path, "a")
		var running atomic.Bool
		running.Store(true)
		var got strings.Builder
		done := make(chan error, 1)
		go func() {
			done <- Read(t.Context(), path, Options{Follow: true, Tail: -1, Limit: -1}, running.Load,
				func(b []byte) error { got.Write(b); return nil })
		}()
		synctest.Wait()
		// Three rotations before the next look, and a line that the writer had still had for the first file.
		for i, line := range []string{"b", "c", "d"} {
			rotate(9)
			if i == 0 {
				files, err := Files(path)
				if err != nil || len(files) != 1 {
					t.Fatal(files, err)
				}
				add(files[0], "a2")
			}
			add(path, line)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if want := "a\na2\nb\nc\nd\n"; got.String() != want {
			t.Errorf("got %q, want %q", got.String(), want)
		}
		// The new file is there before the writer goes over to it.
		rotate(9)
		add(path, "f")
		time.Sleep(pollInterval)
		files, err := Files(path)
		if err != nil {
			t.Fatal(err)
		}
		add(files[len(files)-1], "e")
		time.Sleep(time.Second)
		synctest.Wait()
		if want := "a\na2\nb\nc\nd\ne\nf\n"; got.String() != want {
			t.Errorf("got %q, want %q", got.String(), want)
		}
		// What is not kept cannot be read; the rest is.
		for _, line := range []string{"g", "h", "i", "j"} {
			rotate(3)
			add(path, line)
		}
		running.Store(false)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if want := "a\na2\nb\nc\nd\ne\nf\nh\ni\nj\n"; got.String() != want {
			t.Errorf("got %q, want %q", got.String(), want)
		}
	})
}

// Whoever reads a log while room of it is given back to the disk gets what is left of it, line by line, and no zeros.
// spec: CTR-8
func TestHoleWithinALine(t *testing.T) {
	path := write(t, "2026-01-01T00:00:01Z stdout P torn\n2026-01-01T00:00:01Z stdout P apart"+
		strings.Repeat("\x00", 3<<20)+"2026-01-01T00:00:02Z stdout F whole\n")
	var got strings.Builder
	if err := Read(t.Context(), path, Options{Tail: -1, Limit: -1}, never,
		func(b []byte) error { got.Write(b); return nil }); err != nil || got.String() != "torn\nwhole\n" {
		t.Errorf("%.100q, %v", got.String(), err)
	}
}

// Of a line without an end the beginning is read, and no more is held, however it was written. The log goes on with
// the next line.
// spec: CTR-8
func TestLongLine(t *testing.T) {
	for name, piece := range map[string]int{"at once": 3 << 20, "little by little": 16 << 10} {
		t.Run(name, func(t *testing.T) {
			path := write(t, "2026-01-01T00:00:01Z stdout F before\n")
			synctest.Test(t, func(t *testing.T) {
				var running atomic.Bool
				running.Store(true)
				var got strings.Builder
				done := make(chan error, 1)
				go func() {
					done <- Read(t.Context(), path, Options{Follow: true, Tail: -1, Limit: -1}, running.Load,
						func(b []byte) error { got.Write(b); return nil })
				}()
				f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0o600)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				add := func(text string) {
					if _, err := f.WriteString(text); err != nil {
						t.Error(err)
					}
					time.Sleep(2 * pollInterval)
				}
				const begin = "2026-01-01T00:00:02Z stdout F "
				add(begin)
				for range (3 << 20) / piece {
					add(strings.Repeat("x", piece))
				}
				add("\n2026-01-01T00:00:03Z stdout F next\n")
				add("2026-01-01T00:00:04Z stdout F last\n")
				running.Store(false)
				if err := <-done; err != nil {
					t.Error(err)
				}
				if want := "before\n" + strings.Repeat("x", maxLine-len(begin)) + "\nnext\nlast\n"; got.String() != want {
					t.Errorf("%d bytes that begin with %.20q, want %d", got.Len(), got.String(), len(want))
				}
			})
		})
	}
}

func TestReadEnds(t *testing.T) {
	path := write(t, sample)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Read(ctx, path, Options{Follow: true, Tail: -1, Limit: -1}, func() bool { return true },
		func([]byte) error { return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	full := errors.New("full")
	err = Read(t.Context(), path, Options{Tail: -1, Limit: -1}, never, func([]byte) error { return full })
	if !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
	if err := Read(t.Context(), filepath.Join(t.TempDir(), "none"), Options{Tail: 5, Limit: -1}, never,
		func([]byte) error { return nil }); err != nil {
		t.Errorf("a missing file: %v", err)
	}
}

// spec: CTR-1
func TestLast(t *testing.T) {
	if got := Last(write(t, sample), 2, 100); got != "\nfive\n" {
		t.Errorf("got %q", got)
	}
	if got := Last(write(t, sample), 80, 6); got != "\nfive\n" {
		t.Errorf("got %q", got)
	}
	if got := Last("/none", 80, 6); got != "" {
		t.Errorf("got %q", got)
	}
}

// spec: CTR-8
func TestRotate(t *testing.T) {
	path := write(t, sample)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	reopened := 0
	reopen := func() error {
		reopened++
		return os.WriteFile(path, []byte(sample), 0o600)
	}
	if err := Rotate(path, 1<<20, 3, now, reopen); err != nil || reopened != 0 {
		t.Errorf("a small log was rotated: %v", err)
	}
	for i := range 5 {
		if err := Rotate(path, 10, 3, now.Add(time.Duration(i)*time.Second), reopen); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) != 3 || reopened != 5 {
		t.Errorf("%v are left, %v", files, err)
	}
	if err := Rotate(path, 10, 3, now.Add(time.Hour), func() error { return errors.New("busy") }); err == nil {
		t.Error("no error")
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != sample {
		t.Errorf("the log was not moved back: %v", err)
	}
}

// A directory's name may hold what means something in patterns, and a log's name may begin another's.
func TestFilesAreFoundByName(t *testing.T) {
	dir := filepath.Join(t.TempDir(), `a[b]*?\c`)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "0.log")
	write := func() error { return os.WriteFile(path, []byte(sample), 0o600) }
	if files, err := Files(filepath.Join(dir, "none", "0.log")); err != nil || len(files) != 0 {
		t.Errorf("of no directory: %v, %v", files, err)
	}
	for _, name := range []string{"10.log", "0.logs", "0.log"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(sample), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 5 {
		if err := Rotate(path, 10, 3, now.Add(time.Duration(i)*time.Second), write); err != nil {
			t.Fatal(err)
		}
	}
	files, err := Files(path)
	want := []string{path, path + ".20260101-000003.000000000", path + ".20260101-000004.000000000"}
	if err != nil || !slices.Equal(files, want) {
		t.Errorf("%q are left, %v; want %q", files, err, want)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(sample), int64(2), int64(7))
	f.Add([]byte("\n\n\n"), int64(1), int64(-1))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte, tail, limit int64) {
		path := filepath.Join(dir, "f.log")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		n := int64(0)
		err := Read(t.Context(), path, Options{Tail: tail, Limit: limit, Timestamps: true}, never, func(b []byte) error {
			n += int64(len(b))
			return nil
		})
		if err != nil || limit >= 0 && n > limit {
			t.Fatalf("%d bytes, %v", n, err)
		}
	})
}

// What a flood has written between two looks does not keep its room: of what is moved aside the end stays, and readers
// read on where they are. spec: CTR-8
func TestFloodIsTrimmed(t *testing.T) {
	const size = 1 << 20
	path := filepath.Join(t.TempDir(), "0.log")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(f)
	lines := 0
	for written := 0; written < 10*size; lines++ {
		n, _ := fmt.Fprintf(w, "2026-01-01T00:00:00Z stdout F line %d %s\n", lines, strings.Repeat("x", 100))
		written += n
	}
	if err := errors.Join(w.Flush(), f.Close()); err != nil {
		t.Fatal(err)
	}
	moved := time.Date(2026, 1, 1, 0, 0, 1, 0, time.UTC)
	reopen := func() error { return os.WriteFile(path, nil, 0o600) }
	if err := Rotate(path, size, 3, moved, reopen); err != nil {
		t.Fatal(err)
	}
	files, err := Files(path)
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	var info syscall.Stat_t
	if err := syscall.Stat(files[1], &info); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "linux" && info.Blocks*512 > 2*size {
		t.Errorf("%d bytes have %d on the disk", info.Size, info.Blocks*512)
	}
	first, last, n := "", "", 0
	err = Read(t.Context(), files[1], Options{Tail: -1, Limit: -1}, never, func(b []byte) error {
		for line := range strings.Lines(string(b)) {
			if n++; first == "" {
				first = line
			}
			last = line
		}
		return nil
	})
	if err != nil || !strings.HasPrefix(first, "line ") || !strings.HasPrefix(last, fmt.Sprintf("line %d ", lines-1)) {
		t.Errorf("read from %.20q to %.20q, %v", first, last, err)
	}
	if n > lines/5 {
		t.Errorf("%d of %d lines are left", n, lines)
	}
}
