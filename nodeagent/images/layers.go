package images

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"monoplane.dev/nodeagent/images/unpack"
)

// layerInfo is the file info.json of a layer.
type layerInfo struct {
	// Bytes is the sum of the sizes of files, Inodes the number of entries.
	Bytes  int64 `json:"bytes"`
	Inodes int64 `json:"inodes"`
	// Implied are the directories whose owner and mode are those of lower layers.
	Implied []string `json:"implied,omitempty"`
}

const infoFile = "info.json"

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

// unpack sees to it that a layer is unpacked. Of several who want it at the same time one unpacks it, and the others
// wait.
func (s *Store) unpack(ctx context.Context, diffID string, b blob) error {
	name, err := hexOf(diffID)
	if err != nil {
		return err
	}
	have := func() (bool, error) {
		_, err := os.Stat(s.path(layersDir, name))
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return err == nil, err
	}
	if ok, err := have(); ok || err != nil {
		return err
	}
	f, err := s.openBlob(b.Digest)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := lockFile(ctx, f); err != nil {
		return err
	}
	if ok, err := have(); ok || err != nil {
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
		return errors.Join(err, unpack.RemoveAll(dir))
	}
	err = os.Rename(dir, s.path(layersDir, name))
	if errors.Is(err, fs.ErrExist) { // the same layer, compressed in another way
		return unpack.RemoveAll(dir)
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
	stats, err := unpack.Tar(ctx, to, r.Tee(sum), unpack.Options{
		Flavour: s.flavour, Owners: os.Geteuid() == 0 && s.flavour != unpack.User,
		Bytes: s.cfg.Limits.Unpacked, Entries: s.cfg.Limits.Entries, Reserve: s.cfg.Limits.Reserve,
	})
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
	return os.WriteFile(filepath.Join(dir, infoFile), text, 0o600)
}
