package podlog

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"
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
	old, err := filepath.Glob(path + ".*")
	if err != nil {
		return err
	}
	slices.Sort(old) // by time: the names end with it
	for len(old) > 0 && len(old)+1 > keep {
		if err := os.Remove(old[0]); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		old = old[1:]
	}
	return nil
}
