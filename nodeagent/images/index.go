package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"monoplane.dev/nodeagent/images/registry"
)

// index is the file of that name.
type index struct {
	Images []*record `json:"images"`
}

// record is an image with what the store needs of it.
type record struct {
	Image
	// Manifest is the digest of the manifest, whose blob is there, as are those of the configuration and the layers.
	Manifest string `json:"manifest"`
	// Blobs are the compressed layers, the lowest first.
	Blobs []blob `json:"blobs"`
	// Boot is the boot of the machine in which it came; empty once all of it has reached the disk.
	Boot string `json:"boot,omitempty"`
}

// blob is what a manifest says of a blob.
type blob struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
}

const indexFile = "index.json"

// readIndex reads the index as it is at the moment. It is replaced as a whole, so that no lock is needed.
func (s *Store) readIndex() (*index, error) {
	text, err := os.ReadFile(s.path(indexFile))
	if errors.Is(err, fs.ErrNotExist) {
		return &index{}, nil
	}
	if err != nil {
		return nil, err
	}
	var out index
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("%s cannot be read (without the file, images are pulled and loaded anew): %w",
			s.path(indexFile), err)
	}
	return &out, nil
}

// change changes the index.
func (s *Store) change(ctx context.Context, do func(*index) error) error {
	return s.locked(ctx, func() error {
		x, err := s.readIndex()
		if err != nil {
			return err
		}
		if err := do(x); err != nil {
			return err
		}
		return s.writeIndex(x)
	})
}

func (s *Store) writeIndex(x *index) error {
	slices.SortFunc(x.Images, func(a, b *record) int { return strings.Compare(a.ID, b.ID) })
	text, err := json.MarshalIndent(x, "", " ")
	if err != nil {
		return err
	}
	return s.dir.Write(indexFile, text)
}

// find returns the image that a reference stands for.
func (x *index) find(reference string) (*record, error) {
	hex, isID := strings.CutPrefix(reference, "sha256:")
	if !isID {
		if ref, err := registry.ParseReference(reference); err == nil {
			for _, r := range x.Images {
				if ref.Digest == "" && slices.Contains(r.Tags, ref.Tagged()) ||
					ref.Digest != "" && slices.Contains(r.Digests, ref.Pinned(ref.Digest)) {
					return r, nil
				}
			}
		}
	}
	const least = 4
	var found *record
	if len(hex) >= least && strings.Trim(hex, "0123456789abcdef") == "" {
		for _, r := range x.Images {
			if !strings.HasPrefix(r.ID, "sha256:"+hex) {
				continue
			}
			if found != nil {
				return nil, fmt.Errorf("%w reference: %q is the beginning of several images' ids", ErrInvalid, reference)
			}
			found = r
		}
	}
	if found == nil {
		return nil, fmt.Errorf("image %q: %w", reference, ErrNotFound)
	}
	return found, nil
}

// add adds an image, whose names other images lose.
func (x *index) add(n *record) {
	var same *record
	for _, r := range x.Images {
		if r.ID == n.ID {
			same = r
			continue
		}
		r.Tags = slices.DeleteFunc(r.Tags, func(t string) bool { return slices.Contains(n.Tags, t) })
	}
	if same == nil {
		x.Images = append(x.Images, n)
		return
	}
	n.Tags = union(same.Tags, n.Tags)
	n.Digests = union(same.Digests, n.Digests)
	n.Came, n.Pinned = same.Came, same.Pinned
	*same = *n
}

func union(a, b []string) []string {
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}

// Image returns the image that a tag, a name with a digest, an id, or the unambiguous beginning of an id, at least 4
// hex digits, stands for; ErrNotFound if there is none.
func (s *Store) Image(reference string) (Image, error) {
	x, err := s.readIndex()
	if err != nil {
		return Image{}, err
	}
	r, err := x.find(reference)
	if err != nil {
		return Image{}, err
	}
	return r.Image, nil
}

// List returns all images, sorted by id.
func (s *Store) List() ([]Image, error) {
	x, err := s.readIndex()
	if err != nil {
		return nil, err
	}
	out := make([]Image, 0, len(x.Images))
	for _, r := range x.Images {
		out = append(out, r.Image)
	}
	return out, nil
}

// Tag gives an image a further name; an image that has had it loses it.
func (s *Store) Tag(ctx context.Context, reference, tag string) error {
	ref, err := registry.ParseReference(tag)
	if err != nil || ref.Digest != "" {
		return fmt.Errorf("%w tag %q: it must be like registry.example.com/name:tag", ErrInvalid, tag)
	}
	return s.change(ctx, func(x *index) error {
		r, err := x.find(reference)
		if err != nil {
			return err
		}
		named := *r
		named.Tags = []string{ref.Tagged()}
		x.add(&named)
		return nil
	})
}

// Remove removes a tag; the image too, if the tag was its last, or if reference is its id. ErrInUse if a container's
// root is made of it, or a container mounts it.
func (s *Store) Remove(ctx context.Context, reference string) error {
	var gone *record
	err := s.change(ctx, func(x *index) error {
		r, err := x.find(reference)
		if err != nil {
			return err
		}
		if ref, err := registry.ParseReference(reference); err == nil && ref.Digest == "" && len(r.Tags) > 1 &&
			slices.Contains(r.Tags, ref.Tagged()) {
			r.Tags = slices.DeleteFunc(r.Tags, func(t string) bool { return t == ref.Tagged() })
			return nil
		}
		roots, err := s.Roots()
		if err != nil {
			return err
		}
		for _, root := range roots {
			if root.Image == r.ID {
				return fmt.Errorf("image %q is %w: container %s is made of it", reference, ErrInUse, root.ID)
			}
			if slices.Contains(root.images(), r.ID) {
				return fmt.Errorf("image %q is %w: container %s has it as a volume", reference, ErrInUse, root.ID)
			}
		}
		gone = r
		x.Images = slices.DeleteFunc(x.Images, func(o *record) bool { return o == r })
		return nil
	})
	if err != nil || gone == nil {
		return err
	}
	return s.collect(ctx, gone.needs())
}

// needs returns the digests of an image's blobs and layers.
func (r *record) needs() []string { return slices.Concat(r.allBlobs(), r.Layers) }

// allBlobs returns the digests of an image's blobs: the manifest, the configuration and the compressed layers.
func (r *record) allBlobs() []string {
	return append([]string{r.Manifest, r.ID}, blobDigests(r.Blobs)...)
}

// RawConfig returns the configuration of an image as its maker wrote it, in JSON.
func (s *Store) RawConfig(reference string) ([]byte, error) {
	img, err := s.Image(reference)
	if err != nil {
		return nil, err
	}
	return s.readBlob(img.ID)
}
