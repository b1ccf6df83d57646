package images

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"monoplane.dev/nodeagent/images/registry"
	"monoplane.dev/nodeagent/images/unpack"
)

// The files of archives.
const (
	layoutFile   = "oci-layout"
	topFile      = "index.json"    // of an OCI layout
	dockerFile   = "manifest.json" // of docker save
	layoutBlobs  = "blobs/sha256"
	refName      = "org.opencontainers.image.ref.name"
	containerdAs = "io.containerd.image.name"
)

// Load adds the images of an archive: one of docker save, or an OCI layout as a tar, compressed or not. An index is
// taken apart: of it comes the image for this machine's platform. What is no image, such as an artifact or an
// attestation, is left out. The images have the names that the archive gives them, and no others that they have had;
// those without a name are known by their id.
func (s *Store) Load(ctx context.Context, r io.Reader, opts ...LoadOption) ([]Image, error) {
	o := loadOptionsOf(opts)
	dir := s.scratch("load")
	defer unpack.RemoveAll(dir) //nolint:errcheck // what stays goes with this process
	t := &teller{to: o.progress}
	read := &countingReader{from: r, tell: func(n int64) { t.tell(Progress{Archive, Reading, n, o.size}) }}
	from, err := s.spool(ctx, dir, read)
	if err != nil {
		return nil, full(err)
	}
	t.tell(Progress{Archive, Complete, read.n, read.n})
	return s.load(ctx, from, t, o)
}

func loadOptionsOf(opts []LoadOption) (o loadOptions) {
	for _, set := range opts {
		set(&o)
	}
	return o
}

// countingReader tells how much was read.
type countingReader struct {
	from io.Reader
	n    int64
	tell func(int64)
}

func (r *countingReader) Read(b []byte) (int, error) {
	n, err := r.from.Read(b)
	r.n += int64(n)
	r.tell(r.n)
	return n, err
}

// LoadDir is as Load for an OCI layout that is a directory.
func (s *Store) LoadDir(ctx context.Context, dir string, opts ...LoadOption) ([]Image, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	o := loadOptionsOf(opts)
	return s.load(ctx, layout{root}, &teller{to: o.progress}, o)
}

// found is an image of an archive.
type found struct {
	manifest *manifest
	text     []byte
	tags     []string
	// files are where the blobs are.
	files map[string]string
}

func (s *Store) load(ctx context.Context, from content, t *teller, o loadOptions) ([]Image, error) {
	all, skipped, err := s.search(from)
	if err != nil {
		return nil, err
	}
	for _, what := range skipped {
		if o.skipped != nil {
			o.skipped(what)
		}
	}
	var out []Image
	for _, one := range all {
		from := &loading{from: from, files: one.files, lease: s.newLease(), teller: t}
		rec, err := s.bring(ctx, one.manifest, one.text, from)
		var replaced []string
		if err == nil {
			rec.Tags = one.tags
			replaced, err = s.admit(ctx, rec)
		}
		from.lease.release()
		if err = full(err); err != nil {
			return out, errors.Join(err, s.collect(context.WithoutCancel(ctx), from.held))
		}
		s.collectReplaced(ctx, rec.ID, replaced)
		img := rec.Image
		img.Tags = union(one.tags, nil)
		out = append(out, img)
		s.syncs.Go(func() { s.sync(rec.ID, rec.Manifest) })
	}
	return out, nil
}

// search finds the images of an archive, and says what else is in it.
func (s *Store) search(from content) (out []found, skipped []string, err error) {
	top, err := readDocument(from, topFile)
	if err != nil {
		return nil, nil, err
	}
	docker, err := readDocument(from, dockerFile)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case top != nil:
		out, skipped, err = s.searchLayout(from, top)
	case docker != nil:
		out, err = s.searchDocker(from, docker)
	default:
		err = fmt.Errorf("%w archive: it has neither %s, as OCI layouts have, nor %s, as those of docker save have",
			ErrInvalid, topFile, dockerFile)
	}
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("%w archive: it holds no image for this machine", ErrInvalid)
		if len(skipped) > 0 {
			err = fmt.Errorf("%w: %s", err, strings.Join(skipped, "; "))
		}
	}
	return out, skipped, err
}

func (s *Store) searchLayout(from content, top []byte) (out []found, skipped []string, err error) {
	x, err := v1.ParseIndexManifest(bytes.NewReader(top))
	if err != nil {
		return nil, nil, fmt.Errorf("%w archive: %s: %w", ErrInvalid, topFile, err)
	}
	here, err := platformOf("")
	if err != nil {
		return nil, nil, err
	}
	skip := func(d v1.Descriptor, why string) {
		name := d.Digest.String()
		if names := namesOf(d); len(names) > 0 {
			name = names[0]
		}
		skipped = append(skipped, name+": "+why)
	}
	for _, d := range ofPlatform(x.Manifests, here) {
		if kind := kindOf(d); kind != "" {
			skip(d, "it is "+kind+", and no image")
			continue
		}
		text, desc, err := s.resolve(from, d)
		if errors.Is(err, registry.ErrNotFound) {
			skip(d, err.Error())
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		if kind := kindOfManifest(text); kind != "" {
			skip(d, "it is "+kind+", and no image")
			continue
		}
		m, err := readManifest(string(desc.MediaType), text, s.cfg.Limits)
		if err != nil {
			return nil, nil, err
		}
		m.self = blob{string(desc.MediaType), desc.Digest.String(), int64(len(text))}
		one := found{manifest: m, text: text, tags: namesOf(d), files: make(map[string]string)}
		for _, b := range append(m.layers, m.config) {
			hex, err := hexOf(b.Digest)
			if err != nil {
				return nil, nil, err
			}
			one.files[b.Digest] = path.Join(layoutBlobs, hex)
		}
		// docker save names one image several times.
		if i := slices.IndexFunc(out, func(o found) bool { return o.manifest.self.Digest == m.self.Digest }); i >= 0 {
			out[i].tags = union(out[i].tags, one.tags)
			continue
		}
		out = append(out, one)
	}
	return out, skipped, nil
}

// kindOf says what an index has that is no image of a container, by what it says itself; empty for what may be one. Of
// an image some name the type of its configuration there.
func kindOf(d v1.Descriptor) string {
	switch {
	case d.Annotations["vnd.docker.reference.type"] != "":
		return "of the kind " + d.Annotations["vnd.docker.reference.type"]
	case d.ArtifactType != "" && d.Platform == nil && !types.MediaType(d.ArtifactType).IsConfig():
		return "an artifact of the type " + d.ArtifactType
	case d.MediaType != "" && !d.MediaType.IsImage() && !d.MediaType.IsIndex() && !d.MediaType.IsSchema1():
		return "of the media type " + string(d.MediaType)
	default:
		return ""
	}
}

// kindOfManifest is kindOf by a manifest: of an image it names a configuration, and layers that are archives.
func kindOfManifest(text []byte) string {
	m, err := v1.ParseManifest(bytes.NewReader(text))
	if err != nil {
		return "" // whoever reads it says what is wrong
	}
	if m.Config.MediaType != "" && !m.Config.MediaType.IsConfig() {
		return "an artifact of the type " + cmp.Or(m.ArtifactType, string(m.Config.MediaType))
	}
	for _, l := range m.Layers {
		if l.MediaType != "" && !l.MediaType.IsLayer() && !strings.Contains(string(l.MediaType), "tar") {
			return "an artifact with a layer of the media type " + string(l.MediaType)
		}
	}
	return ""
}

// ofPlatform leaves out attestations, and of images that share a name, or have none, those for other platforms where
// one is for the wanted platform.
func ofPlatform(all []v1.Descriptor, want v1.Platform) []v1.Descriptor {
	name := func(d v1.Descriptor) string { return strings.Join(namesOf(d), "") + " " + d.Annotations[refName] }
	wanted := make(map[string]bool)
	for _, d := range all {
		if d.Platform != nil && d.Platform.Satisfies(want) {
			wanted[name(d)] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(d v1.Descriptor) bool {
		return d.Platform != nil && (d.Platform.OS == "unknown" || wanted[name(d)] && !d.Platform.Satisfies(want))
	})
}

// resolve returns the manifest that a descriptor leads to.
func (s *Store) resolve(from content, d v1.Descriptor) ([]byte, v1.Descriptor, error) {
	for range mostIndexes + 1 {
		hex, err := hexOf(d.Digest.String())
		if err != nil {
			return nil, d, err
		}
		text, err := readDocument(from, path.Join(layoutBlobs, hex))
		if err != nil || text == nil {
			return nil, d, errors.Join(err, fmt.Errorf("%w archive: blob %s is missing", ErrInvalid, d.Digest))
		}
		if got, _, err := v1.SHA256(bytes.NewReader(text)); err != nil || got != d.Digest {
			return nil, d, fmt.Errorf("%w archive: blob %s has the digest %s", ErrInvalid, d.Digest, got)
		}
		if !isIndex(string(d.MediaType), text) {
			return text, d, nil
		}
		want, err := platformOf("")
		if err != nil {
			return nil, d, err
		}
		chosen, err := choose(text, want)
		if err != nil {
			return nil, d, err
		}
		if d.Digest, err = v1.NewHash(chosen); err != nil {
			return nil, d, fmt.Errorf("%w index: %w", ErrInvalid, err)
		}
		d.MediaType = ""
	}
	return nil, d, fmt.Errorf("%w archive: indexes within indexes", ErrInvalid)
}

// namesOf returns the names that an OCI layout gives an image. The annotation of OCI may hold no more than a tag.
func namesOf(d v1.Descriptor) []string {
	for _, name := range []string{d.Annotations[containerdAs], d.Annotations[refName]} {
		if !strings.ContainsAny(name, ":/") {
			continue
		}
		if ref, err := registry.ParseReference(name); err == nil && ref.Tagged() != "" {
			return []string{ref.Tagged()}
		}
	}
	return nil
}

// dockerImage is an entry of manifest.json.
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// searchDocker makes manifests for the images of docker save, which has none.
func (s *Store) searchDocker(from content, text []byte) ([]found, error) {
	var all []dockerImage
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("%w archive: %s: %w", ErrInvalid, dockerFile, err)
	}
	var out []found
	for _, d := range all {
		one := found{files: make(map[string]string)}
		describe := func(name string, mediaType types.MediaType) (v1.Descriptor, error) {
			digest, size, err := from.digest(name)
			if err != nil {
				return v1.Descriptor{}, fmt.Errorf("%w archive: %q, which %s names: %w", ErrInvalid, name, dockerFile, err)
			}
			one.files[digest] = name
			hash, err := v1.NewHash(digest)
			return v1.Descriptor{MediaType: mediaType, Digest: hash, Size: size}, err
		}
		m := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1}
		var err error
		if m.Config, err = describe(d.Config, types.OCIConfigJSON); err != nil {
			return nil, err
		}
		for _, name := range d.Layers {
			layer, err := describe(name, types.OCIUncompressedLayer)
			if err != nil {
				return nil, err
			}
			if layer.MediaType, err = layerType(from, name); err != nil {
				return nil, err
			}
			m.Layers = append(m.Layers, layer)
		}
		if one.text, err = json.Marshal(m); err != nil {
			return nil, err
		}
		if one.manifest, err = readManifest(string(m.MediaType), one.text, s.cfg.Limits); err != nil {
			return nil, err
		}
		digest, size, err := v1.SHA256(bytes.NewReader(one.text))
		if err != nil {
			return nil, err
		}
		one.manifest.self = blob{string(m.MediaType), digest.String(), size}
		for _, tag := range d.RepoTags {
			ref, err := registry.ParseReference(tag)
			if err != nil {
				return nil, fmt.Errorf("%w archive: %w", ErrInvalid, err)
			}
			if name := ref.Tagged(); name != "" { // and not a digest, by which a registry knows it
				one.tags = append(one.tags, name)
			}
		}
		out = append(out, one)
	}
	return out, nil
}

// layerType returns the media type of a layer by how it begins.
func layerType(from content, name string) (types.MediaType, error) {
	f, err := from.open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	magic := make([]byte, unpack.Magic)
	if _, err := io.ReadFull(f, magic); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return "", err
	}
	switch unpack.CompressionOf(magic) {
	case unpack.Gzip:
		return types.OCILayer, nil
	case unpack.Zstd:
		return types.OCILayerZStd, nil
	default:
		return types.OCIUncompressedLayer, nil
	}
}

// loading is the origin of an archive's blobs.
type loading struct {
	from  content
	files map[string]string
	lease *lease
	held  []string
	*teller
}

func (l *loading) hold(ctx context.Context, digests []string) error {
	l.held = digests
	return l.lease.hold(ctx, digests)
}

func (l *loading) wants() v1.Platform { return v1.Platform{} }

func (l *loading) tell(at Progress) {
	if at.Phase == Downloading {
		at.Phase = Reading
	}
	l.teller.tell(at)
}

func (l *loading) get(ctx context.Context, b blob, to registry.Sink) error {
	if err := to.Reset(); err != nil {
		return err
	}
	f, err := l.from.open(l.files[b.Digest])
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w archive: blob %s is missing", ErrInvalid, b.Digest)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := io.Copy(to, io.LimitReader(contextReader{ctx, f}, b.Size+1))
	if err == nil && n != b.Size {
		err = fmt.Errorf("%w archive: blob %s does not have %d bytes", ErrInvalid, b.Digest, b.Size)
	}
	return err
}

// contextReader ends when its context does.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(b []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.Reader.Read(b)
}
