package images

import (
	"archive/tar"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"monoplane.dev/nodeagent/images/registry"
)

// Save writes images as a tar that is both an OCI layout and an archive of docker save. An image that is named by a
// tag is saved with this tag, by its id with all its tags.
func (s *Store) Save(ctx context.Context, w io.Writer, references ...string) error {
	keep := s.newLease()
	defer keep.release()
	var all []*record
	// An image that comes again with another manifest takes the blobs of this one away, unless they are held by then.
	if err := s.locked(ctx, func() (err error) {
		if all, err = s.named(references); err != nil {
			return err
		}
		var needs []string
		for _, r := range all {
			needs = append(needs, r.needs()...)
		}
		return keep.write(needs)
	}); err != nil {
		return err
	}
	out := &saver{s: s, ctx: ctx, w: tar.NewWriter(w), written: make(map[string]bool)}
	if err := out.all(all); err != nil {
		return err
	}
	return out.w.Close()
}

// named returns what Save is asked for, each image once.
func (s *Store) named(references []string) ([]*record, error) {
	x, err := s.readIndex()
	if err != nil {
		return nil, err
	}
	var all []*record
	for _, reference := range references {
		r, err := x.find(reference)
		if err != nil {
			return nil, err
		}
		one := *r
		if ref, err := registry.ParseReference(reference); err == nil && slices.Contains(r.Tags, ref.Tagged()) {
			one.Tags = []string{ref.Tagged()}
		}
		if i := slices.IndexFunc(all, func(o *record) bool { return o.ID == one.ID }); i >= 0 {
			all[i].Tags = union(all[i].Tags, one.Tags)
			continue
		}
		all = append(all, &one)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w request: no image is named", ErrInvalid)
	}
	return all, nil
}

type saver struct {
	s       *Store
	ctx     context.Context
	w       *tar.Writer
	written map[string]bool
}

func (o *saver) all(all []*record) error {
	if err := o.document(layoutFile, map[string]string{"imageLayoutVersion": "1.0.0"}); err != nil {
		return err
	}
	top := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}
	var docker []dockerImage
	for _, r := range all {
		for _, d := range r.allBlobs() {
			if err := o.blob(d); err != nil {
				return fmt.Errorf("image %s: blob %s: %w", r.ID, d, err)
			}
		}
		text, err := o.s.readBlob(r.Manifest)
		if err != nil {
			return err
		}
		var kind struct {
			MediaType types.MediaType `json:"mediaType"`
		}
		if err := json.Unmarshal(text, &kind); err != nil {
			return err
		}
		if kind.MediaType == "" {
			kind.MediaType = types.OCIManifestSchema1
		}
		hash, err := v1.NewHash(r.Manifest)
		if err != nil {
			return err
		}
		desc := v1.Descriptor{MediaType: kind.MediaType, Digest: hash, Size: int64(len(text))}
		if len(r.Tags) == 0 {
			top.Manifests = append(top.Manifests, desc)
		}
		for _, tag := range r.Tags {
			named := desc
			named.Annotations = map[string]string{containerdAs: tag, refName: tag[strings.LastIndexByte(tag, ':')+1:]}
			top.Manifests = append(top.Manifests, named)
		}
		one := dockerImage{Config: inLayout(r.ID), RepoTags: r.Tags}
		for _, b := range r.Blobs {
			one.Layers = append(one.Layers, inLayout(b.Digest))
		}
		docker = append(docker, one)
	}
	if err := o.document(topFile, top); err != nil {
		return err
	}
	return o.document(dockerFile, docker)
}

func inLayout(digest string) string {
	return path.Join(layoutBlobs, strings.TrimPrefix(digest, "sha256:"))
}

func (o *saver) document(name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := o.header(name, int64(len(text))); err != nil {
		return err
	}
	_, err = o.w.Write(text)
	return err
}

func (o *saver) header(name string, size int64) error {
	return o.w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size, Typeflag: tar.TypeReg})
}

func (o *saver) blob(digest string) error {
	if o.written[digest] {
		return nil
	}
	o.written[digest] = true
	f, err := o.s.openBlob(digest)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := o.header(inLayout(digest), info.Size()); err != nil {
		return err
	}
	_, err = io.Copy(o.w, contextReader{o.ctx, f})
	return err
}
