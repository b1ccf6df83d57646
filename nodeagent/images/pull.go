package images

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sync/errgroup"

	"monoplane.dev/nodeagent/images/registry"
	"monoplane.dev/nodeagent/images/unpack"
)

// downloads is how many blobs of an image are downloaded at a time.
const downloads = 3

// mostConfig is how large an image's configuration may be, in bytes.
const mostConfig = 8 << 20

// Pull gets an image from its registry and unpacks it. Reference is a name with a tag or digest or both; without, the
// tag is latest. Errors are those of package registry, ErrInvalid, and those of the disk. After an error that trying
// again may mend, what has come is kept for an hour.
func (s *Store) Pull(ctx context.Context, reference string, opts PullOptions) (Image, error) {
	ref, err := registry.ParseReference(reference)
	if err != nil {
		return Image{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	repo, err := s.registry.Repository(ctx, ref, opts.Auth)
	if err != nil {
		return Image{}, err
	}
	defer repo.Close()
	if repo.Again = opts.Again; repo.Again == nil {
		repo.Again = func(err error) {
			s.cfg.Log.Info("a registry is asked again", "image", reference, "error", err)
		}
	}
	p := &pull{s: s, ref: ref, repo: repo, lease: s.newLease(), teller: teller{to: opts.Progress}}
	if p.platform, err = platformOf(opts.Platform); err != nil {
		return Image{}, err
	}
	rec, replaced, err := p.run(ctx)
	p.lease.release()
	if err = full(err); err != nil {
		if isFinal(err) {
			err = errors.Join(err, s.collect(context.WithoutCancel(ctx), p.held))
		}
		return Image{}, err
	}
	s.collectReplaced(ctx, rec.ID, replaced)
	s.syncs.Go(func() { s.sync(rec.ID, rec.Manifest) })
	return rec.Image, nil
}

// isFinal reports whether trying again does not help.
func isFinal(err error) bool {
	return errors.Is(err, ErrInvalid) || errors.Is(err, registry.ErrWrong) || errors.Is(err, registry.ErrRefused) ||
		errors.Is(err, unpack.ErrNoRoom)
}

// platformOf reads a platform such as linux/arm64/v8; this machine's if s is empty. Images are of Linux.
func platformOf(s string) (v1.Platform, error) {
	if s == "" {
		return v1.Platform{OS: "linux", Architecture: runtime.GOARCH}, nil
	}
	p, err := v1.ParsePlatform(s)
	if err != nil || p.OS == "" || p.Architecture == "" {
		return v1.Platform{}, fmt.Errorf("%w platform %q: it must be like linux/arm64", ErrInvalid, s)
	}
	return *p, nil
}

// pull is one pull.
type pull struct {
	s        *Store
	ref      registry.Reference
	repo     *registry.Repository
	platform v1.Platform
	lease    *lease
	held     []string
	teller
}

// teller tells somebody, or nobody, how far blobs are: one at a time, whoever calls it.
type teller struct {
	mu sync.Mutex
	to func(Progress)
}

func (t *teller) tell(at Progress) {
	if t.to == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.to(at)
}

// run returns the image, and what admit does.
func (p *pull) run(ctx context.Context) (rec *record, replaced []string, err error) {
	top, text, err := p.repo.Manifest(ctx, "")
	if err != nil {
		return nil, nil, err
	}
	desc := top
	for depth := 0; isIndex(desc.MediaType, text); depth++ {
		if depth >= mostIndexes {
			return nil, nil, fmt.Errorf("%s: %w image: indexes within indexes", p.ref, ErrInvalid)
		}
		chosen, err := choose(text, p.platform)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", p.ref, err)
		}
		if desc, text, err = p.repo.Manifest(ctx, chosen); err != nil {
			return nil, nil, err
		}
	}
	m, err := readManifest(desc.MediaType, text, p.s.cfg.Limits)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", p.ref, err)
	}
	m.self = blob{desc.MediaType, desc.Digest, desc.Size}
	rec, err = p.s.bring(ctx, m, text, p)
	if err != nil {
		return nil, nil, err
	}
	if tag := p.ref.Tagged(); tag != "" {
		rec.Tags = []string{tag}
	}
	rec.Digests = union([]string{p.ref.Pinned(top.Digest)}, []string{p.ref.Pinned(desc.Digest)})
	if desc.Digest != top.Digest {
		rec.Digests = []string{p.ref.Pinned(top.Digest)}
	}
	replaced, err = p.s.admit(ctx, rec)
	return rec, replaced, err
}

// origin is where the blobs of an image come from.
type origin interface {
	// hold keeps blobs and layers from being collected.
	hold(ctx context.Context, digests []string) error
	// get brings a blob to a sink, from where the sink ends.
	get(ctx context.Context, b blob, to registry.Sink) error
	// tell says how far a blob is.
	tell(Progress)
	// platform is what the image must be for; the zero value if it may be for any.
	wants() v1.Platform
}

func (p *pull) hold(ctx context.Context, digests []string) error {
	p.held = digests
	return p.lease.hold(ctx, digests)
}

func (p *pull) get(ctx context.Context, b blob, to registry.Sink) error {
	return p.repo.Blob(ctx, registry.Descriptor{MediaType: b.MediaType, Digest: b.Digest, Size: b.Size}, to)
}

func (p *pull) wants() v1.Platform { return p.platform }

// bring brings the blobs of an image from where it is, and unpacks its layers. The record has no names yet.
func (s *Store) bring(ctx context.Context, m *manifest, text []byte, from origin) (*record, error) {
	needs := append([]string{m.self.Digest, m.config.Digest}, blobDigests(m.layers)...)
	if err := from.hold(ctx, needs); err != nil {
		return nil, err
	}
	if err := s.putBlob(ctx, m.self, text); err != nil {
		return nil, err
	}
	if err := s.fetchBlob(ctx, m.config, func(ctx context.Context, to registry.Sink) error {
		return from.get(ctx, m.config, to)
	}, nil); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	rec, err := s.describe(m, from.wants())
	if err != nil {
		return nil, err
	}
	if err := from.hold(ctx, slices.Concat(needs, rec.Layers)); err != nil {
		return nil, err
	}
	var total int64
	for _, b := range m.layers {
		if have, err := s.hasBlob(b); err != nil {
			return nil, err
		} else if !have {
			total += b.Size
		}
	}
	if err := s.room(total); err != nil {
		return nil, err
	}
	return rec, s.bringLayers(ctx, rec, from)
}

// full gives an error of a disk that has become full meanwhile the words of one that was found so before.
func full(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", unpack.ErrNoRoom, err)
	}
	return err
}

func (s *Store) bringLayers(ctx context.Context, rec *record, from origin) error {
	group, ctx := errgroup.WithContext(ctx)
	downloading := make(chan struct{}, downloads)
	for i, b := range rec.Blobs {
		group.Go(func() error {
			select {
			case downloading <- struct{}{}:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			told := func(done int64) { from.tell(Progress{b.Digest, Downloading, done, b.Size}) }
			err := s.fetchBlob(ctx, b, func(ctx context.Context, to registry.Sink) error { return from.get(ctx, b, to) }, told)
			<-downloading
			if err != nil {
				return fmt.Errorf("layer %d of %d: %w", i+1, len(rec.Blobs), err)
			}
			if s.unpacks() {
				have, err := s.hasLayer(rec.Layers[i])
				if err == nil && !have {
					from.tell(Progress{b.Digest, Unpacking, b.Size, b.Size})
					err = s.unpack(ctx, rec.Layers[i], b)
				}
				if err != nil {
					return fmt.Errorf("layer %d of %d: %w", i+1, len(rec.Blobs), err)
				}
			}
			from.tell(Progress{b.Digest, Complete, b.Size, b.Size})
			return nil
		})
	}
	return group.Wait()
}

// unpacks reports whether layers can be unpacked here.
func (s *Store) unpacks() bool { return runtime.GOOS == "linux" }

// admit puts an image, all of which is there, into the index. If it was there with another manifest, it returns what
// that one needed, for collectReplaced.
func (s *Store) admit(ctx context.Context, rec *record) (replaced []string, err error) {
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	rec.Came, rec.Boot = s.cfg.Now().UTC(), boot
	err = s.change(ctx, func(x *index) error {
		if old, err := x.find(rec.ID); err == nil {
			switch {
			case old.Manifest != rec.Manifest:
				replaced = old.needs()
			case old.Boot == "":
				rec.Boot = ""
			}
		}
		x.add(rec)
		return nil
	})
	return replaced, err
}

// collectReplaced removes what an image has needed with its last manifest and nothing needs now. The lease of what has
// come is to be released before: it holds layers, and a blob that is not compressed has the digest of its layer.
func (s *Store) collectReplaced(ctx context.Context, id string, replaced []string) {
	if len(replaced) == 0 {
		return
	}
	if err := s.collect(context.WithoutCancel(ctx), replaced); err != nil { // the image has come in spite of it
		s.cfg.Log.Warn("blobs that nothing needs any more stay until other images are removed", "image", id, "err", err)
	}
}

// sync notes that an image with its manifest has reached the disk, once it has.
func (s *Store) sync(id, manifest string) {
	f, err := os.Open(s.path("lock"))
	if err == nil {
		err = syncFS(f)
		f.Close()
	}
	if err == nil {
		err = s.change(context.Background(), func(x *index) error {
			for _, r := range x.Images {
				if r.ID == id && r.Manifest == manifest { // and not another one that has come since
					r.Boot = ""
				}
			}
			return nil
		})
	}
	if err != nil {
		s.cfg.Log.Warn("it is not known whether an image has reached the disk; it is checked after the next boot",
			"image", id, "err", err)
	}
}

// room returns an error if so many more bytes would leave too little on the disk.
func (s *Store) room(bytes int64) error {
	left, err := available(s.dir.Path())
	if err != nil || left-bytes >= s.cfg.Limits.Reserve {
		return err
	}
	return fmt.Errorf("%w: %d bytes are available, the image takes %d, and %d are to stay available", unpack.ErrNoRoom,
		left, bytes, s.cfg.Limits.Reserve)
}

// manifest is a manifest that has been checked.
type manifest struct {
	self, config blob
	layers       []blob
}

// isIndex reports whether a document is a list of manifests. The registry's word counts less than the document's.
func isIndex(mediaType string, text []byte) bool {
	if m, err := v1.ParseManifest(bytes.NewReader(text)); err == nil && m.MediaType != "" {
		return m.MediaType.IsIndex()
	} else if err == nil && m.Config.Digest.Hex != "" {
		return false
	}
	if x, err := v1.ParseIndexManifest(bytes.NewReader(text)); err == nil && len(x.Manifests) > 0 {
		return true
	}
	return types.MediaType(mediaType).IsIndex()
}

// mostIndexes is how many indexes may lead to a manifest, each in the one before.
const mostIndexes = 3

// choose returns the digest of the manifest for a platform, or of the index that leads to it. Of several variants of a
// processor it is the usual one, unless the platform names another: not every processor is a later one.
func choose(text []byte, want v1.Platform) (string, error) {
	x, err := v1.ParseIndexManifest(bytes.NewReader(text))
	if err != nil {
		return "", fmt.Errorf("%w index: %w", ErrInvalid, err)
	}
	var has, other, bare []string
	for _, m := range x.Manifests {
		switch {
		case kindOf(m) != "":
			continue
		case m.Platform == nil:
			bare = append(bare, m.Digest.String())
			continue
		case m.Platform.OS == "unknown": // attestations
			continue
		case m.Platform.OS == want.OS && m.Platform.Architecture == want.Architecture:
			if variantOf(*m.Platform) == variantOf(want) {
				return m.Digest.String(), nil
			}
			if want.Variant == "" {
				other = append(other, m.Digest.String())
			}
		}
		has = append(has, m.Platform.String())
	}
	switch {
	case len(other) > 0:
		return other[0], nil
	case len(has) == 0 && len(bare) == 1:
		return bare[0], nil
	}
	return "", fmt.Errorf("%w: no image for the platform %s; there are: %s", registry.ErrNotFound, want.String(),
		strings.Join(has, ", "))
}

// variantOf returns a platform's variant, the usual one of its processors where it names none, as in containerd.
func variantOf(p v1.Platform) string {
	return cmp.Or(p.Variant, map[string]string{"amd64": "v1", "arm64": "v8", "arm": "v7"}[p.Architecture])
}

// readManifest reads and checks a manifest.
func readManifest(mediaType string, text []byte, l Limits) (*manifest, error) {
	m, err := v1.ParseManifest(bytes.NewReader(text))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w manifest: %w", ErrInvalid, err)
	case m.SchemaVersion == 1 || m.MediaType.IsSchema1() || types.MediaType(mediaType).IsSchema1():
		return nil, fmt.Errorf("%w manifest: it is of Docker's version 1, which has been given up", ErrInvalid)
	case len(m.Layers) > l.Layers:
		return nil, fmt.Errorf("%w image: it has %d layers, more than %d", ErrInvalid, len(m.Layers), l.Layers)
	case m.Config.Size < 0 || m.Config.Size > mostConfig:
		return nil, fmt.Errorf("%w image: its configuration has %d bytes, more than %d", ErrInvalid, m.Config.Size,
			mostConfig)
	}
	out := &manifest{config: blobOf(m.Config)}
	for _, d := range m.Layers {
		if d.Size < 0 || d.Size > l.Blob {
			return nil, fmt.Errorf("%w image: layer %s has %d bytes, more than %d", ErrInvalid, d.Digest, d.Size, l.Blob)
		}
		out.layers = append(out.layers, blobOf(d))
	}
	for _, d := range append(blobDigests(out.layers), out.config.Digest) {
		if _, err := hexOf(d); err != nil {
			return nil, fmt.Errorf("manifest: %w", err)
		}
	}
	return out, nil
}

func blobOf(d v1.Descriptor) blob { return blob{string(d.MediaType), d.Digest.String(), d.Size} }

// describe reads an image's configuration, which is there.
func (s *Store) describe(m *manifest, want v1.Platform) (*record, error) {
	text, err := s.readBlob(m.config.Digest)
	if err != nil {
		return nil, err
	}
	c, err := v1.ParseConfigFile(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%w configuration: %w", ErrInvalid, err)
	}
	if len(c.RootFS.DiffIDs) != len(m.layers) {
		return nil, fmt.Errorf("%w image: its configuration knows %d layers, its manifest %d; perhaps it is no image of a "+
			"container", ErrInvalid, len(c.RootFS.DiffIDs), len(m.layers))
	}
	platform := v1.Platform{OS: c.OS, Architecture: c.Architecture, Variant: c.Variant}
	if want.OS != "" && (c.OS != "" && c.OS != want.OS || c.Architecture != "" && c.Architecture != want.Architecture) {
		return nil, fmt.Errorf("%w: the image is for the platform %s, not %s", registry.ErrNotFound, platform.String(),
			want.String())
	}
	rec := &record{
		Image: Image{
			ID: m.config.Digest, Size: m.self.Size + m.config.Size, Platform: platform.String(),
			Created: c.Created.UTC(), Config: runConfig(&c.Config),
		},
		Manifest: m.self.Digest, Blobs: m.layers,
	}
	for i, d := range c.RootFS.DiffIDs {
		if _, err := hexOf(d.String()); err != nil {
			return nil, fmt.Errorf("configuration: %w", err)
		}
		rec.Layers = append(rec.Layers, d.String())
		rec.Size += m.layers[i].Size
	}
	return rec, nil
}

func runConfig(c *v1.Config) RunConfig {
	out := RunConfig{
		User: c.User, Env: c.Env, Entrypoint: c.Entrypoint, Cmd: c.Cmd, WorkingDir: c.WorkingDir, StopSignal: c.StopSignal,
		Labels: c.Labels,
	}
	for v := range c.Volumes {
		out.Volumes = append(out.Volumes, v)
	}
	slices.Sort(out.Volumes)
	return out
}
