package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"monoplane.dev/internal/datadir"
)

// recover removes what processes that died have left, and checks after a boot of the machine what may not have reached
// the disk before. The directory is locked.
func (s *Store) recover() error {
	if err := s.sweep(); err != nil {
		return err
	}
	boot, err := bootID()
	if err != nil {
		return err
	}
	checked, err := os.ReadFile(s.path("boot"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if string(checked) == boot {
		return nil
	}
	if err := s.checkAll(); err != nil {
		return err
	}
	return s.dir.Write("boot", []byte(boot))
}

// bootID names the boot of the machine. Where the machine does not tell, each look is another boot, so that what has
// not reached the disk is always checked.
func bootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if errors.Is(err, fs.ErrNotExist) {
		return time.Now().UTC().Format(time.RFC3339Nano), nil
	}
	return strings.TrimSpace(string(text)), err
}

// sweep removes the files and folders of processes that are dead. The caller has locked the directory.
func (s *Store) sweep() error {
	if err := datadir.Sweep(s.dir.Path()); err != nil {
		return err
	}
	entries, err := os.ReadDir(s.path(tmpDir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		dir := s.path(tmpDir, e.Name())
		if dir == s.name {
			continue
		}
		f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR, 0)
		if err == nil {
			err = tryLock(f)
		}
		// A folder without a lock was being made by somebody who died, since the directory was locked meanwhile.
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			if err := s.removeAll(dir); err != nil {
				s.cfg.Log.Warn("what a dead process has left cannot be removed", "dir", dir, "err", err)
			}
		}
		f.Close()
	}
	return nil
}

// checkAll checks, after the machine was booted, all that is not known to have reached the disk before.
func (s *Store) checkAll() error {
	if err := s.eachEntry(topsDir, func(_, path string, _ fs.FileInfo) error { return s.discard(path) }); err != nil {
		return err
	}
	x, err := s.readIndex()
	if err != nil {
		return err
	}
	// Two sets, since a layer that is not compressed can be there as a blob and unpacked, by one digest.
	blobs, layers := make(map[string]bool), make(map[string]bool)
	for _, r := range x.Images {
		if r.Boot == "" {
			for _, d := range r.allBlobs() {
				blobs[d] = true
			}
			for _, d := range r.Layers {
				layers[d] = true
			}
		}
	}
	if err := s.eachEntry(layersDir, func(digest, path string, _ fs.FileInfo) error {
		if layers[digest] {
			return nil
		}
		return s.discard(path)
	}); err != nil {
		return err
	}
	if err := s.eachEntry(blobsDir, func(digest, path string, _ fs.FileInfo) error {
		if blobs[digest] {
			return nil
		}
		if right, err := s.isRight(digest, path); err != nil || right {
			return err
		}
		return os.Remove(path)
	}); err != nil {
		return err
	}
	n := len(x.Images)
	x.Images = slices.DeleteFunc(x.Images, func(r *record) bool {
		have := s.isWhole(r)
		if !have {
			s.cfg.Log.Warn("an image did not reach the disk before the machine was restarted, and is pulled again when it is "+
				"needed", "image", r.ID, "tags", r.Tags)
		}
		return !have
	})
	if len(x.Images) == n {
		return nil
	}
	return s.writeIndex(x)
}

// isWhole reports whether all blobs of an image are there.
func (s *Store) isWhole(r *record) bool {
	for _, d := range r.allBlobs() {
		hex, err := hexOf(d)
		if err != nil {
			return false
		}
		if _, err := os.Stat(s.path(blobsDir, hex)); err != nil {
			return false
		}
	}
	return true
}

func blobDigests(blobs []blob) []string {
	var out []string
	for _, b := range blobs {
		out = append(out, b.Digest)
	}
	return out
}

func (s *Store) isRight(digest, path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return false, err
	}
	return "sha256:"+hex.EncodeToString(sum.Sum(nil)) == digest, nil
}

// eachEntry calls do with what is in a folder whose names are digests.
func (s *Store) eachEntry(folder string, do func(digest, path string, info fs.FileInfo) error) error {
	entries, err := os.ReadDir(s.path(folder))
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := do("sha256:"+e.Name(), s.path(folder, e.Name()), info); err != nil {
			return err
		}
	}
	return nil
}

// discard takes a directory away at once, and removes it.
func (s *Store) discard(path string) error {
	gone := s.scratch("gone")
	if err := os.Rename(path, gone); err != nil {
		return err
	}
	return s.removeAll(gone)
}

// lease keeps blobs and layers that no image names yet until release is called. More can be added.
type lease struct {
	s    *Store
	path string
}

func (s *Store) newLease() *lease { return &lease{s, s.scratch(leasePrefix)} }

const leasePrefix = "lease"

// hold makes the digests those of the lease.
func (l *lease) hold(ctx context.Context, digests []string) error {
	return l.s.locked(ctx, func() error { return l.write(digests) })
}

// write is hold for whoever has locked the directory.
func (l *lease) write(digests []string) error {
	text, err := json.Marshal(digests)
	if err != nil {
		return err
	}
	return datadir.Keep(l.path, datadir.Unflushed, text)
}

func (l *lease) release() {
	if err := os.Remove(l.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.s.cfg.Log.Warn("what a pull needed is kept until this process ends", "err", err)
	}
}

// leased returns what running pulls need. The directory is locked, so that no lease is half written.
func (s *Store) leased() (map[string]bool, error) {
	paths, err := filepath.Glob(s.path(tmpDir, "*", leasePrefix+"-*"))
	if err != nil {
		return nil, err
	}
	out := make(map[string]bool)
	for _, p := range paths {
		text, err := os.ReadFile(p)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var digests []string
		if err == nil {
			err = json.Unmarshal(text, &digests)
		}
		if err != nil {
			return nil, err
		}
		for _, d := range digests {
			out[d] = true
		}
	}
	return out, nil
}

// forgotten is how long something that no image and no pull needs is kept, for a pull that is tried again.
const forgotten = time.Hour

// collect removes what nothing needs: of the digests at once, all else once it was forgotten.
func (s *Store) collect(ctx context.Context, digests []string) error {
	var gone []string
	err := s.locked(ctx, func() error {
		if err := s.sweep(); err != nil {
			return err
		}
		blobs, err := s.leased()
		if err != nil {
			return err
		}
		layers := maps.Clone(blobs) // a lease does not tell which of the two it holds
		x, err := s.readIndex()
		if err != nil {
			return err
		}
		for _, r := range x.Images {
			for _, d := range r.allBlobs() {
				blobs[d] = true
			}
			for _, d := range r.Layers {
				layers[d] = true
			}
		}
		old := s.cfg.Now().Add(-forgotten)
		for folder, needed := range map[string]map[string]bool{
			blobsDir: blobs, layersDir: layers, topsDir: blobs, partialDir: blobs, // An image's id is a blob's, too.
		} {
			if err := s.eachEntry(folder, func(digest, path string, info fs.FileInfo) error {
				if needed[digest] || !slices.Contains(digests, digest) && info.ModTime().After(old) {
					return nil
				}
				gone = append(gone, s.scratch("gone"))
				return os.Rename(path, gone[len(gone)-1])
			}); err != nil {
				return err
			}
		}
		return nil
	})
	for _, path := range gone {
		err = errors.Join(err, s.removeAll(path))
	}
	return err
}
