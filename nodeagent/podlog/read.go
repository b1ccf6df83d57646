package podlog

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"
)

// Options choose what of a log is read.
type Options struct {
	// Follow goes on until the container has ended and all of its log is read.
	Follow bool
	// Timestamps puts its time before every line, with nanoseconds in nine digits.
	Timestamps bool
	// Since leaves out older lines; zero for none.
	Since time.Time
	// Tail is the number of lines from the end to begin with; negative for all.
	Tail int64
	// Limit is the number of bytes after which to stop; negative for none.
	Limit int64
	// Stream is "stdout" or "stderr"; empty for both.
	Stream string
}

const (
	pollInterval = 100 * time.Millisecond
	chunk        = 32 << 10
	// fixedNano is how kubelets write times: with all nine digits, where runtimes leave out zeros at the end.
	fixedNano = "2006-01-02T15:04:05.000000000Z07:00"
	// maxLine bounds what is held of one line; runtimes split lines at 16 KiB.
	maxLine = 1 << 20
)

// Read hands the log at path to out, in pieces. Running says whether the container may still write; it is asked
// while following. The bytes given to out are not used again.
func Read(ctx context.Context, path string, o Options, running func() bool, out func([]byte) error) error {
	r := &reader{options: o, out: out, lineStart: true, left: o.Limit}
	defer r.close()
	at, tail, err := begin(path, o.Tail)
	if err != nil {
		return err
	}
	settled, missing := false, 0
	for {
		ends := !o.Follow || !running() // before the read: what is written until then must be seen
		if r.file == nil {
			if err := r.open(at, tail); err != nil {
				return err
			}
			switch {
			case r.file != nil:
				tail = -1 // later files are read from their beginning
			case at != path: // it has just been removed
				at = path
				continue
			}
		}
		if err := r.drain(ctx); err != nil {
			if errors.Is(err, errLimit) {
				return nil
			}
			return err
		}
		next, err := r.next(path)
		if missing++; !errors.Is(err, errMissing) {
			missing = 0
		}
		switch {
		case missing > 0 && (!ends || missing < patience):
		case missing > 0:
			return nil
		case err != nil:
			return err
		case next != "" && (settled || next != path):
			r.close()
			at, settled = next, false
			continue
		case next != "":
			// The writer is about to go over to the new file, and may still have something for this one.
			settled = true
		case ends:
			return nil
		}
		t := time.NewTimer(pollInterval)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
}

// errMissing says that there is no file at the log's path: it is being moved aside, or the container was removed,
// which it must have been when it stays so for patience looks.
var errMissing = errors.New("there is no log")

const patience = 5

var errLimit = errors.New("as many bytes as were asked for have been read")

type reader struct {
	options Options
	out     func([]byte) error

	file *os.File
	buf  *bufio.Reader
	// line holds the beginning of a line whose end is not there yet.
	line []byte
	// lineStart: the next text begins a line.
	lineStart bool
	// pending is what has not been handed out.
	pending []byte
	left    int64
}

// open opens the file if it exists.
func (r *reader) open(path string, tail int64) error {
	f, err := openLog(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	at, _, err := tailStart(f, tail)
	if err == nil {
		at = max(at, dataStart(f))
		_, err = f.Seek(at, io.SeekStart)
	}
	if err != nil {
		_ = f.Close()
		return err
	}
	r.file, r.line = f, nil
	if r.buf == nil {
		r.buf = bufio.NewReaderSize(f, chunk)
	} else {
		r.buf.Reset(f)
	}
	return nil
}

// openLog opens a log. The container's processes may have put something else in its place: pipes are not waited for.
func openLog(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) //nolint:gosec // the agent made the path
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("%s is not a regular file", path), err, f.Close())
	}
	return f, nil
}

func (r *reader) close() {
	if r.file != nil {
		_ = r.file.Close()
		r.file = nil
	}
}

// drain hands out all lines up to the end of the file.
func (r *reader) drain(ctx context.Context) error {
	if r.file == nil {
		return nil
	}
	for {
		piece, err := r.buf.ReadSlice('\n')
		if r.line = append(r.line, piece...); len(r.line) > maxLine {
			r.line = r.line[:maxLine] // the rest of this line is dropped
		}
		switch {
		case err == nil:
			// Room that was given back to the disk reads as zeros.
			if e := r.take(bytes.TrimLeft(bytes.TrimSuffix(r.line, []byte{'\n'}), "\x00")); e != nil {
				return e
			}
			r.line = r.line[:0]
		case errors.Is(err, bufio.ErrBufferFull):
			if len(bytes.TrimLeft(piece, "\x00")) == 0 {
				r.tear()
			}
		case errors.Is(err, io.EOF):
			return r.flush()
		default:
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// tear ends the line that is being read where room was given back to the disk meanwhile: its rest is gone.
func (r *reader) tear() {
	r.line = r.line[:0]
	if !r.lineStart {
		r.pending, r.lineStart = append(r.pending, '\n'), true
	}
}

// take adds a line to what is handed out, if it was asked for.
func (r *reader) take(line []byte) error {
	e, ok := parse(line)
	if !ok || e.time.Before(r.options.Since) || r.options.Stream != "" && e.stream != r.options.Stream {
		return nil
	}
	if r.options.Timestamps && r.lineStart {
		r.pending = append(e.time.AppendFormat(r.pending, fixedNano), ' ')
	}
	r.pending = append(r.pending, e.text...)
	if r.lineStart = !e.part; r.lineStart {
		r.pending = append(r.pending, '\n')
	}
	if len(r.pending) >= chunk || r.left >= 0 && int64(len(r.pending)) >= r.left {
		return r.flush()
	}
	return nil
}

// flush hands out what is pending.
func (r *reader) flush() error {
	data := r.pending
	r.pending = nil
	full := r.left >= 0 && int64(len(data)) >= r.left
	if full {
		data = data[:r.left]
	}
	if len(data) > 0 {
		if err := r.out(data); err != nil {
			return err
		}
		if r.left >= 0 {
			r.left -= int64(len(data))
		}
	}
	if full {
		return errLimit
	}
	return nil
}

// next returns the file that the log goes on in after the one that is open: the next to be moved aside, or the one at
// path. It is empty while the open one is the newest. When the open file has been removed in the meantime, the log
// goes on with the oldest that is left.
func (r *reader) next(path string) (string, error) {
	if r.file == nil {
		return "", nil
	}
	have, err := r.file.Stat()
	if err != nil {
		return "", err
	}
	now, err := os.Stat(path)
	if err == nil && os.SameFile(have, now) {
		return "", nil
	}
	gone := err != nil
	files, err := Files(path)
	if err != nil {
		return "", err
	}
	order := slices.DeleteFunc(files, func(name string) bool { return name == path })
	if !gone {
		order = append(order, path)
	}
	for i, name := range order {
		if info, err := os.Stat(name); err != nil || !os.SameFile(have, info) {
			continue
		}
		if i+1 < len(order) {
			return order[i+1], nil
		}
		return "", errMissing
	}
	if gone {
		return "", errMissing
	}
	return order[0], nil
}

// begin returns the file in which the last n lines of the log begin, and how many of them it has: right after a
// rotation the newest file has few.
func begin(path string, n int64) (string, int64, error) {
	if n <= 0 {
		return path, n, nil
	}
	files, err := Files(path)
	if err != nil {
		return path, n, err
	}
	aside := slices.DeleteFunc(files, func(name string) bool { return name == path })
	for at := path; ; aside = aside[:len(aside)-1] {
		has, err := count(at, n)
		if err != nil || has == n || len(aside) == 0 {
			return at, n, err
		}
		at, n = aside[len(aside)-1], n-has
	}
}

// count returns how many lines a file has, of the last n at most: none if it is not there.
func count(path string, n int64) (int64, error) {
	f, err := openLog(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	_, has, err := tailStart(f, n)
	return has, err
}

// tailStart returns where the last n lines of f begin, and how many it has of them; 0 for a negative n.
func tailStart(f *os.File, n int64) (at, has int64, err error) {
	if n < 0 {
		return 0, 0, nil
	}
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, 0, err
	}
	if n == 0 || end == 0 {
		return end, 0, nil
	}
	block := make([]byte, 4<<10)
	for at := end; at > 0; {
		size := min(int64(len(block)), at)
		at -= size
		if _, err := f.ReadAt(block[:size], at); err != nil {
			return 0, 0, err
		}
		for i := size - 1; i >= 0; i-- {
			if block[i] != '\n' || at+i == end-1 {
				continue // the last line's own end does not count
			}
			if has++; has == n {
				return at + i + 1, n, nil
			}
		}
	}
	return 0, has + 1, nil
}

// Last returns the text of the last lines of a log, at most so many bytes from its end; empty when it cannot be
// read.
func Last(path string, lines, most int64) string {
	var text []byte
	err := Read(context.Background(), path, Options{Tail: lines, Limit: -1}, func() bool { return false },
		func(b []byte) error {
			text = append(text, b...)
			if int64(len(text)) > most {
				text = bytes.Clone(text[int64(len(text))-most:])
			}
			return nil
		})
	if err != nil {
		return ""
	}
	return string(bytes.ToValidUTF8(text, []byte("?")))
}
