// Package atomicdir keeps a set of files in a directory such that a reader sees all of an old set or all of a new one,
// never a mixture:
//
//	dir/
//	  labels        -> ..data/labels       what containers read: links that never change
//	  user          -> ..data/user
//	  ..data        -> ..2026_01_02_03_04_05.123    replaced by one rename
//	  ..2026_01_02_03_04_05.123/
//	    labels
//	    user/name
//
// It is the layout of Kubernetes' node agent, which programs that watch such a volume know.
//
// A Write that fails or is interrupted, by a full disk for one, leaves the old set in place, and the next one clears
// away what it left. A Write of what is there already changes nothing. Writes of one directory are the caller's to
// serialize.
package atomicdir

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"monoplane.dev/nodeagent/volumes/payload"
)

const (
	current = "..data"
	next    = "..data_tmp"
)

// Write makes files the content of dir, which must exist. Before they are shown, own is called, which gives them to
// whom they are to belong. It reports whether anything was written.
func Write(dir string, files payload.Payload, own func() error) (bool, error) {
	wanted, err := cleaned(files)
	if err != nil {
		return false, err
	}
	now, err := os.Readlink(filepath.Join(dir, current))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	written := false
	if now == "" || !same(filepath.Join(dir, now), wanted) {
		if now, err = publish(dir, wanted, own); err != nil {
			return false, err
		}
		written = true
	}
	if err := show(dir, wanted); err != nil {
		return written, err
	}
	return written, tidy(dir, now, wanted)
}

// cleaned checks the paths and brings them into their shortest form.
func cleaned(files payload.Payload) (payload.Payload, error) {
	const longestName, longestPath = 255, 4096
	out := make(payload.Payload, len(files))
	for name, file := range files {
		switch {
		case name == "":
			return nil, fmt.Errorf("invalid path: must not be empty: %q", name)
		case filepath.IsAbs(name):
			return nil, fmt.Errorf("invalid path: must be relative path: %s", name)
		case len(name) > longestPath:
			return nil, fmt.Errorf("invalid path: must be less than or equal to %d characters", longestPath)
		}
		for part := range strings.SplitSeq(name, "/") {
			if part == ".." {
				return nil, fmt.Errorf("invalid path: must not contain '..': %s", name)
			}
			if len(part) > longestName {
				return nil, fmt.Errorf("invalid path: filenames must be less than or equal to %d characters", longestName)
			}
		}
		short := filepath.Clean(name)
		if strings.HasPrefix(name, "..") || strings.HasPrefix(short, "..") {
			return nil, fmt.Errorf("invalid path: must not start with '..': %s", name)
		}
		out[short] = file
	}
	return out, nil
}

// same reports whether a directory holds the files and nothing else.
func same(dir string, files payload.Payload) bool {
	found := 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		file, ok := files[name]
		if !ok || !entry.Type().IsRegular() {
			return fs.ErrExist
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.Equal(data, file.Data) {
			return fs.ErrExist
		}
		found++
		return nil
	})
	return err == nil && found == len(files)
}

// publish writes the files into a directory of their own and lets the link point there; it returns its name.
func publish(dir string, files payload.Payload, own func() error) (name string, err error) {
	fresh, err := os.MkdirTemp(dir, time.Now().UTC().Format("..2006_01_02_15_04_05."))
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(fresh))
		}
	}()
	if err := os.Chmod(fresh, 0o755); err != nil {
		return "", err
	}
	for path, file := range files {
		if err := write(fresh, path, file); err != nil {
			return "", err
		}
	}
	if err := own(); err != nil {
		return "", err
	}
	link := filepath.Join(dir, next)
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	name = filepath.Base(fresh)
	if err := os.Symlink(name, link); err != nil {
		return "", err
	}
	return name, os.Rename(link, filepath.Join(dir, current))
}

// write makes one file, with the directories above it.
func write(dir, path string, file payload.File) error {
	at := dir
	for part := range strings.SplitSeq(filepath.Dir(path), "/") {
		if part == "." {
			continue
		}
		at = filepath.Join(at, part)
		if err := os.Mkdir(at, 0o755); errors.Is(err, fs.ErrExist) {
			continue
		} else if err != nil {
			return err
		}
		if err := os.Chmod(at, 0o755); err != nil { // whatever the agent's umask
			return err
		}
	}
	f, err := os.OpenFile(filepath.Join(dir, path), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(file.Data)
	mode := fs.FileMode(file.Mode).Perm()
	if err == nil && file.Owner != nil {
		err = f.Chown(int(*file.Owner), -1)
		if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
			// Without root it cannot be given away. Its reader is another user in the container only, and nobody else gets as
			// far as this directory.
			mode, err = mode|mode>>3&0o040|mode>>6&0o004, nil
		}
	}
	if err == nil {
		err = f.Chmod(mode) // after Chown, which may take bits away
	}
	return errors.Join(err, f.Close())
}

// top returns the names in the volume that lead to its files.
func top(files payload.Payload) map[string]*int64 {
	names := make(map[string]*int64, len(files))
	for path, file := range files {
		name, _, _ := strings.Cut(path, "/")
		names[name] = file.Owner
	}
	return names
}

// show makes the links that containers read.
func show(dir string, files payload.Payload) error {
	for name, owner := range top(files) {
		link := filepath.Join(dir, name)
		err := os.Symlink(filepath.Join(current, name), link)
		if errors.Is(err, fs.ErrExist) {
			continue // the link of an earlier Write, or a directory that another volume is mounted on
		}
		if err == nil && owner != nil {
			err = os.Lchown(link, int(*owner), -1)
			if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
				err = nil // who owns a link changes nothing for its readers
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// tidy removes the links to files that are no more and the sets that are not shown.
func tidy(dir, now string, files payload.Payload) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	wanted := top(files)
	for _, entry := range entries {
		name := entry.Name()
		path := filepath.Join(dir, name)
		switch {
		case name == current || name == now:
		case strings.HasPrefix(name, "..") && entry.IsDir():
			err = errors.Join(err, os.RemoveAll(path))
		case entry.Type()&fs.ModeSymlink != 0:
			_, keep := wanted[name]
			if to, _ := os.Readlink(path); !keep && to == filepath.Join(current, name) {
				err = errors.Join(err, os.Remove(path))
			}
		}
	}
	return err
}
