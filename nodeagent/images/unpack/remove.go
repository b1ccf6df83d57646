package unpack

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// RemoveAll is os.RemoveAll for what Tar has made: directories that are closed to their owner are opened. What is
// owned by somebody else may stay, with an error.
func RemoveAll(dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	// A directory is opened before WalkDir reads it. Links are not followed.
	_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			if os.Chmod(p, 0o700) != nil {
				return fs.SkipDir
			}
		}
		return nil
	})
	return os.RemoveAll(dir)
}
