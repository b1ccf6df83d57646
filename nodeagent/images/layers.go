package images

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"monoplane.dev/internal/userids"
	"monoplane.dev/nodeagent/images/unpack"
	"monoplane.dev/nodeagent/subids"
)

// layerInfo is the file info.json of a layer.
type layerInfo struct {
	// Bytes is the sum of the sizes of files, Inodes the number of entries.
	Bytes  int64 `json:"bytes"`
	Inodes int64 `json:"inodes"`
	// Implied are the directories whose attributes are those of lower layers.
	Implied []string `json:"implied,omitempty"`
}

// Files of a layer beside its directory.
const (
	infoFile   = "info.json"
	opaqueFile = "opaque" // only of a layer that hides all that is below it
)

// unpackers is how many layers are unpacked at a time.
func unpackers() int {
	const most = 4
	return max(2, min(runtime.NumCPU(), most))
}

// layerInfo reads what is known of an unpacked layer; fs.ErrNotExist if it is not there.
func (s *Store) layerInfo(hex string) (layerInfo, error) {
	var out layerInfo
	text, err := os.ReadFile(s.path(layersDir, hex, infoFile))
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal(text, &out)
}

// layerDir returns the directory of an unpacked layer.
func (s *Store) layerDir(diffID string) (string, error) {
	name, err := hexOf(diffID)
	if err != nil {
		return "", err
	}
	return s.path(layersDir, name, "fs"), nil
}

// isOpaque reports whether an unpacked layer hides all that is below it.
func (s *Store) isOpaque(diffID string) (bool, error) {
	name, err := hexOf(diffID)
	if err != nil {
		return false, err
	}
	_, err = os.Lstat(s.path(layersDir, name, opaqueFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// hasLayer reports whether a layer is unpacked.
func (s *Store) hasLayer(diffID string) (bool, error) {
	name, err := hexOf(diffID)
	if err != nil {
		return false, err
	}
	_, err = os.Stat(s.path(layersDir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// unpack sees to it that a layer is unpacked. Of several who want it at the same time one unpacks it, and the others
// wait.
func (s *Store) unpack(ctx context.Context, diffID string, b blob) error {
	name, err := hexOf(diffID)
	if err != nil {
		return err
	}
	if have, err := s.hasLayer(diffID); have || err != nil {
		return err
	}
	f, err := s.openBlob(b.Digest)
	if errors.Is(err, fs.ErrNotExist) { // unless the image has come meanwhile with this layer compressed in another way
		if have, err := s.hasLayer(diffID); have || err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := lockFile(ctx, f); err != nil {
		return err
	}
	if have, err := s.hasLayer(diffID); have || err != nil {
		return err
	}
	select {
	case s.unpacking <- struct{}{}:
		defer func() { <-s.unpacking }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	dir := s.scratch("layer")
	if err := s.unpackTo(ctx, dir, f, diffID); err != nil {
		if errors.Is(err, unpack.ErrHostile) || errors.Is(err, unpack.ErrTooLarge) {
			err = fmt.Errorf("%w layer %s: %w", ErrInvalid, b.Digest, err)
		}
		return errors.Join(err, s.removeAll(dir))
	}
	err = os.Rename(dir, s.path(layersDir, name))
	if errors.Is(err, fs.ErrExist) { // the same layer, compressed in another way
		return s.removeAll(dir)
	}
	return err
}

// unpackTo unpacks a compressed layer, and checks that it is the right one.
func (s *Store) unpackTo(ctx context.Context, dir string, f *os.File, diffID string) error {
	to := filepath.Join(dir, "fs")
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	const buffer = 256 << 10
	r, err := unpack.Decompress(bufio.NewReaderSize(f, buffer))
	if err != nil {
		return err
	}
	defer r.Close()
	sum := sha256.New()
	stats, err := s.tar(ctx, to, r.Tee(sum))
	if err != nil {
		return err
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != diffID {
		return fmt.Errorf("%w layer: uncompressed it has the digest %s, not %s as the image's configuration says",
			ErrInvalid, got, diffID)
	}
	text, err := json.Marshal(layerInfo{Bytes: stats.Bytes, Inodes: stats.Entries, Implied: stats.Implied})
	if err != nil {
		return err
	}
	if stats.Opaque {
		if err := os.WriteFile(filepath.Join(dir, opaqueFile), nil, 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, infoFile), text, 0o600)
}

// tar unpacks an archive with the owners of its files, as far as this process may give files to others. Of an archive
// whose owners cannot be had nothing has been read by then.
func (s *Store) tar(ctx context.Context, to string, r io.Reader) (unpack.Stats, error) {
	o := unpack.Options{
		Flavour: s.flavour, Owners: s.isOwner(),
		Bytes: s.cfg.Limits.Unpacked, Entries: s.cfg.Limits.Entries, Reserve: s.cfg.Limits.Reserve,
	}
	var stats unpack.Stats
	err := s.withIDs(func(maps userids.Maps) (err error) {
		stats, err = subids.Tar(ctx, maps, to, r, o)
		return err
	}, func() (err error) {
		stats, err = unpack.Tar(ctx, to, r, o)
		return err
	})
	return stats, err
}

// isOwner tells whether this process may give files to any owner by itself.
func (s *Store) isOwner() bool { return os.Geteuid() == 0 && s.flavour != unpack.User }

// withIDs does something with the ids of /etc/subuid where there are any, and otherwise without.
func (s *Store) withIDs(with func(userids.Maps) error, without func() error) error {
	if len(s.cfg.IDs.Users) == 0 || s.cfg.IDs.IsSingle() {
		return without()
	}
	err := with(s.cfg.IDs)
	if errors.Is(err, subids.ErrIDs) {
		s.cfg.Log.Warn("files of images belong to root in containers, whoever owns them in the image", "reason", err)
		return without()
	}
	return err
}
