package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"monoplane.dev/internal/datadir"
	"monoplane.dev/internal/userids"
	"monoplane.dev/nodeagent/diskuse"
	"monoplane.dev/nodeagent/images/unpack"
	"monoplane.dev/nodeagent/subids"
)

// Names in the directory of a root.
const (
	rootFile   = "root.json"
	volumesDir = "volumes"
	mountsDir  = "mounts"
)

// mostStacked is how many lower directories overlayfs takes.
const mostStacked = 500

// rootName is what the ids of containers look like.
var rootName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)

// Mountable makes what a container's root file system is to be mounted of. Asked again for the same container it
// returns what is there; for the same container and another image it fails.
func (s *Store) Mountable(ctx context.Context, req RootRequest) (Root, error) {
	if !rootName.MatchString(req.ID) {
		return Root{}, fmt.Errorf("%w id of a container: %q", ErrInvalid, req.ID)
	}
	root, recs, err := s.beginRoot(ctx, req)
	if err != nil || !root.Made.IsZero() {
		return root, err
	}
	for _, rec := range recs {
		for i, b := range rec.Blobs {
			if err := s.unpack(ctx, rec.Layers[i], b); err != nil {
				return Root{}, err
			}
		}
	}
	if err := s.unbound(&root); err != nil {
		return Root{}, fmt.Errorf("root of container %s: %w", req.ID, err)
	}
	if err := s.makeRoot(ctx, &root, recs, req); err != nil {
		return Root{}, fmt.Errorf("root of container %s: %w", req.ID, err)
	}
	if err := s.bound(&root, req.Most); err != nil {
		return Root{}, fmt.Errorf("root of container %s: %w", req.ID, err)
	}
	root.Made = s.cfg.Now().UTC()
	return root, s.writeRoot(root)
}

// beginRoot notes that a container needs images, which cannot be removed from then on. The first one is its root's.
func (s *Store) beginRoot(ctx context.Context, req RootRequest) (Root, []*record, error) {
	root := Root{ID: req.ID, Dir: s.path(rootsDir, req.ID)}
	var recs []*record
	err := s.locked(ctx, func() error {
		x, err := s.readIndex()
		if err != nil {
			return err
		}
		for _, image := range append([]string{req.Image}, req.Mounts...) {
			rec, err := x.find(image)
			if err != nil {
				return err
			}
			recs = append(recs, rec)
		}
		root.Image = recs[0].ID
		for _, rec := range recs[1:] {
			root.Mounts = append(root.Mounts, Files{Image: rec.ID})
		}
		switch old, err := s.Root(req.ID); {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return err
		case !slices.Equal(old.images(), root.images()):
			return fmt.Errorf("container %s has a root of images %v already, and cannot have one of %v", req.ID, old.images(),
				root.images())
		default:
			root = old
			return nil
		}
		if err := os.Mkdir(root.Dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return s.writeRoot(root)
	})
	return root, recs, err
}

// images are the ids of the images that a container is made of.
func (r *Root) images() []string {
	out := []string{r.Image}
	for _, m := range r.Mounts {
		out = append(out, m.Image)
	}
	return out
}

// writeRoot writes a root's file. It need not outlive a boot: the container does not either.
func (s *Store) writeRoot(root Root) error {
	text, err := json.Marshal(root)
	if err != nil {
		return err
	}
	return datadir.Keep(filepath.Join(root.Dir, rootFile), datadir.Unflushed, text)
}

// makeRoot fills a root's directory. What a process that died has made of it is made again.
func (s *Store) makeRoot(ctx context.Context, root *Root, recs []*record, req RootRequest) error {
	root.Lower, root.Upper, root.Work, root.Copied, root.Options, root.Project = nil, "", "", "", nil, 0
	for _, name := range []string{"upper", "work", "copy", volumesDir, mountsDir} {
		if err := s.removeAll(filepath.Join(root.Dir, name)); err != nil {
			return err
		}
	}
	if err := makeVolumes(root, req.Volumes); err != nil {
		return err
	}
	shift := unpack.Shift{UIDs: ranges(req.UIDs), GIDs: ranges(req.GIDs)}
	copied := req.Copy || !s.overlays()
	for i := range root.Mounts {
		m := &root.Mounts[i]
		var err error
		if m.Lower, err = s.lower(ctx, recs[1+i]); err != nil {
			return err
		}
		if copied || len(m.Lower) == 0 || len(m.Lower) > mostStacked { // overlayfs refuses the same directory twice
			lower := m.Lower
			m.Copied, m.Lower = filepath.Join(root.Dir, mountsDir, strconv.Itoa(i)), nil
			if err := os.MkdirAll(filepath.Dir(m.Copied), 0o700); err != nil {
				return err
			}
			if err := s.copy(ctx, m.Copied, lower, shift); err != nil {
				return err
			}
			continue
		}
		if len(m.Lower) == 1 {
			m.Lower = append(m.Lower, s.path(emptyDir))
		}
	}
	lower, err := s.lower(ctx, recs[0])
	if err != nil {
		return err
	}
	if copied || len(lower) > mostStacked {
		root.Copied = filepath.Join(root.Dir, "copy")
		return s.copy(ctx, root.Copied, lower, shift)
	}
	if s.flavour == unpack.User {
		root.Options = []string{"userxattr"}
	}
	if len(lower) == 0 {
		lower = []string{s.path(emptyDir)}
	}
	root.Lower = lower
	root.Upper, root.Work = filepath.Join(root.Dir, "upper"), filepath.Join(root.Dir, "work")
	if err := os.Mkdir(root.Work, 0o700); err != nil {
		return err
	}
	return s.upper(ctx, root.Upper, root.Lower[0], shift)
}

// upper makes the upper directory above a layer. It takes the ids of pods only for a layer whose top is not root's.
func (s *Store) upper(ctx context.Context, dir, layer string, shift unpack.Shift) error {
	own := func() error { return unpack.Upper(dir, layer, shift) }
	if unpack.IsOwn(layer) {
		return own()
	}
	return s.withIDs(func(maps userids.Maps) error { return subids.Upper(ctx, maps, dir, layer) }, own)
}

// lower returns the directories of an image's layers, the uppermost first, with the image's own above them if it has
// one. An image can have a layer several times, such as the one without files: one sees what the uppermost has, and
// overlayfs refuses to have it again below. Below a layer that hides all others there is none.
func (s *Store) lower(ctx context.Context, rec *record) (out []string, err error) {
	var layers []string
	for _, d := range slices.Backward(rec.Layers) {
		if slices.Contains(layers, d) {
			continue
		}
		dir, err := s.layerDir(d)
		if err != nil {
			return nil, err
		}
		layers, out = append(layers, d), append(out, dir)
		opaque, err := s.isOpaque(d)
		if err != nil {
			return nil, err
		}
		if opaque {
			break
		}
	}
	top, err := s.top(ctx, rec.ID, layers)
	if top != "" {
		out = slices.Insert(out, 0, top)
	}
	return out, err
}

// copy copies all files of layers, of which the uppermost is the first, to a directory that it makes.
func (s *Store) copy(ctx context.Context, to string, lower []string, shift unpack.Shift) error {
	lowestFirst := slices.Clone(lower)
	slices.Reverse(lowestFirst)
	o := unpack.MergeOptions{Flavour: s.flavour, Owners: s.isOwner(), Shift: shift, Reserve: s.cfg.Limits.Reserve}
	return s.withIDs(func(maps userids.Maps) error { return subids.Merge(ctx, maps, to, lowestFirst, o) },
		func() error { return unpack.Merge(ctx, to, lowestFirst, o) })
}

// tryOverlay reports whether overlayfs can be mounted of directories of the store, and says it where it cannot.
func (s *Store) tryOverlay() bool {
	err := errors.New("its file system cannot hold what overlayfs needs")
	if s.flavour != unpack.Plain {
		if s.cfg.Overlay == nil {
			return true
		}
		dir := s.scratch("overlay")
		if os.Mkdir(dir, 0o700) != nil {
			return true // The disk may be full, say: that is no answer.
		}
		err = s.cfg.Overlay(dir, s.flavour == unpack.User)
		_ = s.removeAll(dir) // What is left goes with this process's folder.
	}
	if err != nil {
		s.cfg.Log.Warn("each container gets a copy of the files of its image, which takes time and disk: they cannot be an "+
			"overlay", "dir", s.dir.Path(), "reason", err)
	}
	return err == nil
}

// makeVolumes makes the directories of volumes.
func makeVolumes(root *Root, n int) error {
	root.Volumes = nil
	for i := range n {
		if i == 0 {
			if err := os.Mkdir(filepath.Join(root.Dir, volumesDir), 0o700); err != nil {
				return err
			}
		}
		dir := filepath.Join(root.Dir, volumesDir, strconv.Itoa(i))
		err := os.Mkdir(dir, 0o700)
		if err == nil {
			err = os.Chmod(dir, 0o755) //nolint:gosec // only containers get to it; Mkdir is subject to the umask
		}
		if err != nil {
			return err
		}
		root.Volumes = append(root.Volumes, dir)
	}
	return nil
}

func ranges(in []IDMap) []unpack.IDRange {
	var out []unpack.IDRange
	for _, m := range in {
		out = append(out, unpack.IDRange(m))
	}
	return out
}

// Root returns what Mountable has made for a container; ErrNotFound if it has not. Made is zero if that did not come
// to its end.
func (s *Store) Root(id string) (Root, error) {
	text, err := os.ReadFile(s.path(rootsDir, id, rootFile))
	if errors.Is(err, fs.ErrNotExist) || !rootName.MatchString(id) {
		return Root{}, fmt.Errorf("root of container %q: %w", id, ErrNotFound)
	}
	if err != nil {
		return Root{}, err
	}
	var root Root
	if err := json.Unmarshal(text, &root); err != nil { // As a power failure leaves it.
		return Root{}, fmt.Errorf("root of container %q: %w: its file cannot be read: %w", id, ErrNotFound, err)
	}
	return root, nil
}

// Roots returns all roots, sorted by id, so that those of containers that are gone can be released. One whose making
// broke off before it was noted of which image it is has none.
func (s *Store) Roots() ([]Root, error) {
	entries, err := os.ReadDir(s.path(rootsDir))
	if err != nil {
		return nil, err
	}
	var out []Root
	for _, e := range entries {
		root, err := s.Root(e.Name())
		if err != nil {
			root = Root{ID: e.Name(), Dir: s.path(rootsDir, e.Name())}
		}
		out = append(out, root)
	}
	return out, nil
}

// Release removes what Mountable has made for a container. Nothing may be mounted of it any more. It is no error if
// there is nothing. What a container in a user namespace has written can belong to ids that only a process in that
// namespace may remove: then it does so first, in Root.Upper and Root.Work.
func (s *Store) Release(ctx context.Context, id string) error {
	if !rootName.MatchString(id) {
		return fmt.Errorf("%w id of a container: %q", ErrInvalid, id)
	}
	if root, err := s.Root(id); err == nil {
		if err := s.unbound(&root); err != nil {
			return err
		}
	}
	var gone string
	err := s.locked(ctx, func() error {
		path := s.scratch("gone")
		err := os.Rename(s.path(rootsDir, id), path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		gone = path
		return err
	})
	if err != nil || gone == "" {
		return err
	}
	return s.removeAll(gone)
}

// removeAll removes a directory, also with what users of containers have left in it.
func (s *Store) removeAll(dir string) error {
	err := unpack.RemoveAll(dir)
	if errors.Is(err, fs.ErrPermission) && s.cfg.Remove != nil {
		err = s.cfg.Remove(dir)
	}
	return err
}

// RootUsage returns what a container has written in its root and in its volumes, with what those have of the image:
// bytes on the disk, and inodes. What cannot be read is missing in it, and is the error (diskuse.Of).
func (s *Store) RootUsage(ctx context.Context, id string) (Usage, error) {
	root, err := s.Root(id)
	if err != nil {
		return Usage{}, err
	}
	var total diskuse.Size
	for _, dir := range append([]string{root.Upper, root.Copied}, root.Volumes...) {
		if dir == "" {
			continue
		}
		size, failed := subids.Measure(ctx, s.cfg.IDs, dir)
		total.Add(size)
		err = errors.Join(err, failed)
	}
	return Usage(total), err
}

// Usage is what something takes on the disk.
type Usage struct{ Bytes, Inodes int64 }

// Usage returns what images take: blobs and layers, without the roots of containers.
func (s *Store) Usage(ctx context.Context) (Usage, error) {
	var out Usage
	for _, folder := range []string{blobsDir, partialDir} {
		if err := s.eachEntry(folder, func(_, _ string, info fs.FileInfo) error {
			out.Bytes += info.Size()
			out.Inodes++
			return ctx.Err()
		}); err != nil {
			return Usage{}, err
		}
	}
	err := s.eachEntry(layersDir, func(digest, _ string, _ fs.FileInfo) error {
		hex, err := hexOf(digest)
		if err != nil {
			return err
		}
		l, err := s.layerInfo(hex)
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			return nil
		}
		out.Bytes += l.Bytes
		out.Inodes += l.Inodes
		return errors.Join(err, ctx.Err())
	})
	return out, err
}
