package images

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"monoplane.dev/nodeagent/images/unpack"
	"monoplane.dev/nodeagent/subids"
)

// top returns the directory that belongs above the layers of an image, which are given by their diff ids, the
// uppermost first; empty if none does. The image is one that cannot be removed meanwhile.
func (s *Store) top(ctx context.Context, id string, layers []string) (string, error) {
	name, err := hexOf(id)
	if err != nil {
		return "", err
	}
	dir := s.path(topsDir, name)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		made := s.scratch("top")
		if err := s.makeTop(ctx, made, layers); err != nil {
			if errors.Is(err, unpack.ErrTooLarge) {
				err = fmt.Errorf("%w image: %w", ErrInvalid, err)
			}
			return "", errors.Join(err, s.removeAll(made))
		}
		err := os.Rename(made, dir)
		if errors.Is(err, fs.ErrExist) { // Somebody else has made it meanwhile.
			err = s.removeAll(made)
		}
		if err != nil {
			return "", err
		}
	}
	dir = filepath.Join(dir, "fs")
	_, err = os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return dir, err
}

// makeTop makes a directory with what belongs above layers, which is often nothing.
func (s *Store) makeTop(ctx context.Context, dir string, layers []string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	var all []unpack.Layer
	var names unpack.Names
	for _, d := range layers {
		hex, err := hexOf(d)
		if err != nil {
			return err
		}
		info, err := s.layerInfo(hex)
		if err != nil {
			return err
		}
		for _, p := range info.Implied {
			if err := names.Add(p); err != nil {
				return err
			}
		}
		all = append(all, unpack.Layer{Dir: s.path(layersDir, hex, "fs"), Implied: info.Implied})
	}
	if names == (unpack.Names{}) || len(all) < 2 {
		return nil
	}
	to := filepath.Join(dir, "fs")
	o := unpack.MergeOptions{Flavour: s.flavour, Owners: s.isOwner()}
	err := subids.ErrIDs
	if len(s.cfg.IDs.Users) > 0 { // Also for one id: it may look into directories that are closed to their owner.
		err = subids.Top(ctx, s.cfg.IDs, to, all, o)
	}
	if errors.Is(err, subids.ErrIDs) {
		err = unpack.Top(ctx, to, all, o)
	}
	return err
}
