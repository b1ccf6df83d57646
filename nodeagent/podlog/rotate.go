package podlog

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// most is how many times the size at which a log is rotated what was moved aside may have; of more the end is kept.
// What is little anyway stays whole.
const (
	most   = 2
	little = 1 << 20
)

// Rotate moves the log at path aside, if it has at least the given size, has reopen make the runtime write to a new
// file, and removes the oldest of the files moved aside so that at most keep files are left. When reopen fails
// the log is moved back, so that nothing is written out of sight. spec: CTR-8
func Rotate(path string, size int64, keep int, now time.Time, reopen func() error) error {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil || info.Size() < size {
		return err
	}
	aside := path + "." + now.UTC().Format("20060102-150405.000000000")
	if err := os.Rename(path, aside); err != nil {
		return err
	}
	if err := reopen(); err != nil {
		if _, statErr := os.Stat(path); errors.Is(statErr, os.ErrNotExist) {
			err = errors.Join(err, os.Rename(aside, path))
		}
		return err
	}
	if info.Size() > max(most*size, little) { // a flood between two looks
		if err := trim(aside, size); err != nil {
			return err
		}
	}
	old, err := Files(path)
	if err != nil {
		return err
	}
	old = slices.DeleteFunc(old, func(name string) bool { return name == path })
	for len(old) > 0 && len(old)+1 > keep {
		if err := os.Remove(old[0]); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		old = old[1:]
	}
	return nil
}

// Files returns the files of the log at path: itself, if it is there, and those that were moved aside, the oldest
// first. The path is taken as it is; a pattern would give brackets in a directory's name a meaning.
func Files(path string) ([]string, error) {
	dir, name := filepath.Split(path)
	entries, err := os.ReadDir(filepath.Clean(dir))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries { // sorted by name, and the names of those moved aside end with the time
		if e.Name() == name || strings.HasPrefix(e.Name(), name+".") {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files, nil
}
