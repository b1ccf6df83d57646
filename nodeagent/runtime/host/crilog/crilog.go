// Package crilog writes container output in CRI's log format: one entry per line,
//
//	2006-01-02T15:04:05.999999999Z stdout F the line
//
// where the third word is F for the end of a line, and P for a part of one: the next entry of the same stream goes on
// with it, unless the stream has ended there, as that of a program whose last line does not end.
//
// Guarantees: an entry is written whole, by one write, to a file opened for appending; a line longer than MaxLine is
// split, never cut; entries of one stream keep their order. When the disk refuses an entry it is dropped and counted:
// a container never waits for its log. Rotation is up to the caller, who renames the file and calls Reopen.
//
// The package imports little, for the reason given in package sys.
package crilog

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// MaxLine is the most content, in bytes, that one entry holds.
const MaxLine = 16 << 10

// flushSize is how much formatted output is collected, at most, before it is written.
const flushSize = 64 << 10

// Log is the log file of one container, shared by its streams.
type Log struct {
	path string

	// dropped is not guarded by mu, which a write to a disk that hangs holds for as long as that lasts.
	dropped atomic.Int64

	mu   sync.Mutex
	file *os.File // nil when there is no log.
	torn bool     // The last write was cut off: begin the next on a line of its own.
}

// Open opens or makes the file. An empty path gives a Log that drops everything.
func Open(path string) (*Log, error) {
	l := &Log{path: path}
	return l, l.Reopen()
}

// Reopen opens the path anew, after the old file was renamed, and goes on there. When it fails the old file stays.
func (l *Log) Reopen() error {
	if l.path == "" {
		return nil
	}
	// Without O_NONBLOCK, a FIFO that a container has put in the place of its log would be waited for without end.
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NONBLOCK, 0o640)
	if err != nil {
		return err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() && st.Mode()&os.ModeDevice == 0 {
		return errors.Join(err, f.Close(), errors.New(l.path+" is not a file"))
	}
	l.mu.Lock()
	old := l.file
	l.file, l.torn = f, false
	l.mu.Unlock()
	if old != nil {
		return old.Close()
	}
	return nil
}

// Dropped counts the bytes that could not be written. It never waits.
func (l *Log) Dropped() int64 { return l.dropped.Load() }

// Close closes the file.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	f := l.file
	l.file = nil
	return f.Close()
}

func (l *Log) write(b []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil || len(b) == 0 {
		return
	}
	if l.torn {
		b = append([]byte{'\n'}, b...)
	}
	n, err := l.file.Write(b)
	l.torn = err != nil && (n > 0 || l.torn)
	if err != nil {
		l.dropped.Add(int64(len(b) - n))
	}
}

// Copy writes what r delivers as entries of the stream ("stdout" or "stderr") until r ends. A last line without a
// newline is a part of a line, which nothing continues.
func (l *Log) Copy(stream string, r io.Reader) error {
	var out []byte
	in := make([]byte, MaxLine+1) // One more, so that a line of exactly MaxLine is not split before its newline.
	have := 0
	for {
		n, err := r.Read(in[have:])
		have += n
		now := time.Now().UTC()
		start := 0
		for i := have - n; i < have; i++ {
			if in[i] == '\n' {
				out = l.collect(out, now, stream, 'F', in[start:i])
				start = i + 1
			}
		}
		if have-start > MaxLine {
			out = l.collect(out, now, stream, 'P', in[start:start+MaxLine])
			start += MaxLine
		}
		have = copy(in, in[start:have])
		if err != nil && have > 0 {
			out = l.collect(out, now, stream, 'P', in[:have])
		}
		l.write(out)
		out = out[:0]
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (l *Log) collect(out []byte, at time.Time, stream string, tag byte, content []byte) []byte {
	out = at.AppendFormat(out, time.RFC3339Nano)
	out = append(out, ' ')
	out = append(out, stream...)
	out = append(out, ' ', tag, ' ')
	out = append(out, content...)
	out = append(out, '\n')
	if len(out) >= flushSize {
		l.write(out)
		out = out[:0]
	}
	return out
}
