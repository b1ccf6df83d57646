package unpack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Top makes the directory dst, which belongs above the layers of an image, of which the uppermost is the first. It
// holds the directories that the uppermost of their layers only implies, with the attributes that they have in the
// layers below it, and the directories on the way to these. Where there are none it makes nothing. The caller removes
// what there is after an error.
func Top(ctx context.Context, dst string, layers []Layer, o MergeOptions) error {
	t := topper{merger: merger{MergeOptions: o, ctx: ctx}, layers: layers}
	var wanted implied
	all := make([]int, len(layers))
	for i, l := range layers {
		all[i] = i
		for _, p := range l.Implied {
			wanted.add(p, i)
		}
	}
	if err := t.choose(&wanted, "", all); err != nil || len(t.chosen) == 0 {
		return err
	}
	t.chosen = slices.Insert(t.chosen, 0, chosen{"", 0})
	for _, c := range t.chosen {
		if err := os.Mkdir(filepath.Join(dst, c.path), 0o700); err != nil {
			return err
		}
	}
	for _, c := range slices.Backward(t.chosen) { // Those further down first: some may be closed.
		src := filepath.Join(layers[c.from].Dir, c.path)
		var s unix.Stat_t
		if err := unix.Lstat(src, &s); err != nil {
			return &fs.PathError{Op: "lstat", Path: src, Err: err}
		}
		if err := t.attributes(src, filepath.Join(dst, c.path), &s); err != nil {
			return err
		}
	}
	return nil
}

// implied is a directory that layers imply, or one on the way to such.
type implied struct {
	// by are the layers that imply it, in ascending order.
	by    []int
	below map[string]*implied
}

func (n *implied) add(p string, layer int) {
	for name := range strings.SplitSeq(p, "/") {
		next := n.below[name]
		if next == nil {
			next = new(implied)
			if n.below == nil {
				n.below = make(map[string]*implied)
			}
			n.below[name] = next
		}
		n = next
	}
	n.by = append(n.by, layer)
}

type topper struct {
	merger
	layers []Layer
	// chosen are the directories of the top, each after the one that it is in.
	chosen []chosen
}

// chosen is a directory of the top, with the number of the layer whose attributes it gets.
type chosen struct {
	path string
	from int
}

// choose chooses of the directories in a directory of the image, which these layers have.
func (t *topper) choose(n *implied, at string, layers []int) error {
	const most = 1 << 14 // 64 MiB where each takes a block.
	for name, dir := range n.below {
		if err := t.ctx.Err(); err != nil {
			return err
		}
		c := chosen{path: filepath.Join(at, name)}
		from, seen, err := t.origin(dir, c.path, layers)
		if err != nil {
			return err
		}
		if len(seen) == 0 {
			continue
		}
		c.from = from
		before := len(t.chosen)
		t.chosen = append(t.chosen, c)
		if len(seen) > 1 {
			if err := t.choose(dir, c.path, seen); err != nil {
				return err
			}
		}
		if from == seen[0] && len(t.chosen) == before+1 {
			t.chosen = t.chosen[:before]
		}
		if len(t.chosen) > most {
			return fmt.Errorf("%w: more than %d directories have their attributes of layers further down, because those above "+
				"have no entries for them", ErrTooLarge, most)
		}
	}
	return nil
}

// origin returns the layer that says which attributes a directory of the image has: the uppermost that does not only
// imply it. Seen are the layers whose files it shows, of which the uppermost is the first; none if there is no such
// directory.
func (t *topper) origin(dir *implied, p string, layers []int) (from int, seen []int, err error) {
	from = -1
	opaque := false
	for _, i := range layers {
		is, err := t.look(filepath.Join(t.layers[i].Dir, p))
		if err != nil {
			return 0, nil, err
		}
		if is == nothing {
			continue
		}
		if is == otherFile {
			break
		}
		if !opaque {
			seen = append(seen, i)
		}
		_, onlyImplied := slices.BinarySearch(dir.by, i)
		if from < 0 && (!onlyImplied || is == replacement) {
			from = i
		}
		if from >= 0 && is != directory {
			break
		}
		opaque = opaque || is == opaqueDirectory
	}
	if from < 0 && len(seen) > 0 {
		from = seen[0]
	}
	return from, seen, nil
}

// found is what a layer has at a path.
type found int

const (
	nothing found = iota
	directory
	// opaqueDirectory hides the files that lower layers have in it, but not which attributes it has there.
	opaqueDirectory
	// replacement takes the place of what is there in lower layers. Only Plain layers show that; of others such a
	// directory is not said to be implied.
	replacement
	// otherFile is a mark of removal or a file. It hides what is below.
	otherFile
)

func (t *topper) look(p string) (found, error) {
	removed := t.Flavour == Plain && exists(marker(p))
	var s unix.Stat_t
	err := unix.Lstat(p, &s)
	switch {
	// What is too long for a call has to stay as it is.
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENAMETOOLONG):
		if removed {
			return otherFile, nil
		}
		return nothing, nil
	case err != nil:
		return nothing, &fs.PathError{Op: "lstat", Path: p, Err: err}
	case s.Mode&unix.S_IFMT != unix.S_IFDIR:
		return otherFile, nil
	case removed:
		return replacement, nil
	case t.isOpaque(p):
		return opaqueDirectory, nil
	}
	return directory, nil
}
