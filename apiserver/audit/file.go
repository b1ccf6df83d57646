package audit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// FileConfig says where lines are kept, and how many.
type FileConfig struct {
	// Path is the file that is written. Older ones lie beside it, with the time in their names.
	Path string
	// MaxBytes is the size at which a file is put aside; 0 for no bound.
	MaxBytes int64
	// MaxBackups is how many files are kept beside the one that is written; 0 for all.
	MaxBackups int
	// MaxAge is how long they are kept; 0 for ever.
	MaxAge time.Duration
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

// File is a log file of bounded size. It is for one goroutine, a Log's.
type File struct {
	cfg  FileConfig
	file *os.File // nil after a failure, until the next write
	size int64
	// torn says that the last line may have no end, because a write failed in its middle.
	torn bool
}

// backupTime is the time in the name of a file that was put aside, the same as kube-apiserver's.
const backupTime = "2006-01-02T15-04-05.000"

// OpenFile opens the file, which nobody but the owner can read, so that one that cannot be written is found out at the
// start.
func OpenFile(cfg FileConfig) (*File, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	f := &File{cfg: cfg}
	if err := f.open(); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	return f, f.prune()
}

func (f *File) open() error {
	file, err := os.OpenFile(f.cfg.Path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	f.file, f.size = file, info.Size()
	return nil
}

// Write appends lines, of which each goes into one file as a whole.
func (f *File) Write(lines []byte) (n int, err error) {
	for len(lines) > 0 {
		part := lines
		if f.cfg.MaxBytes > 0 {
			if f.size > 0 && f.size+int64(firstLine(lines)) > f.cfg.MaxBytes {
				if err := f.rotate(); err != nil {
					return n, err
				}
			}
			part = lines[:fitting(lines, f.cfg.MaxBytes-f.size)]
		}
		if err := f.append(part); err != nil {
			return n, err
		}
		n, lines = n+len(part), lines[len(part):]
	}
	return n, nil
}

func firstLine(lines []byte) int {
	if i := bytes.IndexByte(lines, '\n'); i >= 0 {
		return i + 1
	}
	return len(lines)
}

// fitting is the length of the whole lines that are no more than room, the first one excepted.
func fitting(lines []byte, room int64) int {
	if int64(len(lines)) <= room {
		return len(lines)
	}
	if i := bytes.LastIndexByte(lines[:max(room, 0)], '\n'); i >= 0 {
		return i + 1
	}
	return firstLine(lines)
}

func (f *File) append(part []byte) error {
	if f.file == nil {
		if err := f.open(); err != nil {
			return err
		}
	}
	if f.torn {
		part = append([]byte{'\n'}, part...)
	}
	n, err := f.file.Write(part)
	f.size += int64(n)
	f.torn = err != nil && (n > 0 || f.torn)
	return err
}

// rotate puts the file aside. A directory in which that cannot be done gets its lines in the same file: they are worth
// more than its bound. Old files that cannot be removed are tried again the next time.
func (f *File) rotate() error {
	if f.file != nil {
		err := f.file.Close()
		f.file = nil
		if err != nil {
			return err
		}
	}
	begin, end := f.split()
	at := f.cfg.Now().UTC()
	aside := begin + at.Format(backupTime) + end
	for _, err := os.Lstat(aside); err == nil; _, err = os.Lstat(aside) { // two in one millisecond
		at = at.Add(time.Millisecond)
		aside = begin + at.Format(backupTime) + end
	}
	if os.Rename(f.cfg.Path, aside) == nil {
		f.torn = false
		_ = f.prune()
	}
	return f.open()
}

// split returns what comes before and after the time in the name of a file that was put aside.
func (f *File) split() (begin, end string) {
	end = filepath.Ext(f.cfg.Path)
	return strings.TrimSuffix(f.cfg.Path, end) + "-", end
}

// prune removes the files that are too old or too many.
func (f *File) prune() error {
	if f.cfg.MaxBackups == 0 && f.cfg.MaxAge == 0 {
		return nil
	}
	begin, end := f.split()
	entries, err := os.ReadDir(filepath.Dir(f.cfg.Path))
	if err != nil {
		return err
	}
	var times []time.Time
	for _, e := range entries {
		name := filepath.Join(filepath.Dir(f.cfg.Path), e.Name())
		text, ours := strings.CutPrefix(name, begin)
		text, has := strings.CutSuffix(text, end)
		if at, err := time.Parse(backupTime, text); ours && has && err == nil && e.Type().IsRegular() {
			times = append(times, at)
		}
	}
	slices.SortFunc(times, func(a, b time.Time) int { return b.Compare(a) })
	var errs []error
	for i, at := range times {
		tooMany := f.cfg.MaxBackups > 0 && i >= f.cfg.MaxBackups
		if tooMany || f.cfg.MaxAge > 0 && f.cfg.Now().Sub(at) > f.cfg.MaxAge {
			errs = append(errs, os.Remove(begin+at.Format(backupTime)+end))
		}
	}
	return errors.Join(errs...)
}

// Close closes the file.
func (f *File) Close() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}
