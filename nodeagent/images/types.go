package images

import (
	"cmp"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"time"

	"monoplane.dev/internal/userids"
	"monoplane.dev/nodeagent/images/registry"
	"monoplane.dev/nodeagent/images/unpack"
	"monoplane.dev/nodeagent/quota"
)

// Config says where a store is, and how it gets images.
type Config struct {
	// Dir is the store's directory. It is made, with mode 0700, if it is missing.
	Dir string
	// Log gets what goes wrong without being anybody's request; slog.Default() if nil.
	Log *slog.Logger
	// Registries says how registries are reached: mirrors, plain HTTP, credentials. The zero value reaches each by
	// HTTPS, those on loopback addresses by HTTP too, without credentials.
	Registries registry.Config
	// Limits bounds what images may take. Zero fields have defaults.
	Limits Limits
	// IDs are those of containers of a user who is not root, beside the user's own: files of images keep their owners as
	// far as they have them. Without any they belong to root in containers.
	IDs userids.Maps
	// Remove removes directories in which containers have left what belongs to other ids than this process's; nil where
	// there are none.
	Remove func(dir string) error
	// Overlay returns why overlayfs cannot be mounted of directories in an empty one; nil if it can, or if that is not
	// known. User says with which extended attributes. It is called before the first root is made. After an error each
	// root is a copy. A nil function stands for a file system that can.
	Overlay func(dir string, user bool) error
	// Now is the clock; time.Now if nil.
	Now func() time.Time
}

// Limits bounds what images may take.
type Limits struct {
	// Layers is the largest number of layers of an image; 500 by default, the most that overlayfs stacks.
	Layers int
	// Blob is the largest compressed size of one layer, in bytes; 32 GiB by default.
	Blob int64
	// Unpacked is the largest sum of the file sizes of one layer, in bytes; 64 GiB by default.
	Unpacked int64
	// Entries is the largest number of entries of one layer; 4 million by default.
	Entries int64
	// Reserve is how many bytes stay available on the disk; 256 MiB by default.
	Reserve int64
}

func (l Limits) complete() Limits {
	const gib = 1 << 30
	return Limits{
		Layers: cmp.Or(l.Layers, 500), Blob: cmp.Or(l.Blob, 32*gib), Unpacked: cmp.Or(l.Unpacked, 64*gib),
		Entries: cmp.Or(l.Entries, 4_000_000), Reserve: cmp.Or(l.Reserve, gib/4),
	}
}

// Image is an image of a store.
type Image struct {
	// ID is the digest of the image's configuration, such as sha256:6a2f….
	ID string
	// Tags are the names by which the image was pulled, loaded or tagged, such as docker.io/library/nginx:1.29, sorted.
	Tags []string
	// Digests name the manifests or indexes by which registries know it, such as
	// docker.io/library/nginx@sha256:8f1c…, sorted.
	Digests []string
	// Size is the size of the compressed layers, the configuration and the manifest, in bytes.
	Size int64
	// Platform is what it was made for, such as linux/amd64.
	Platform string
	// Created is when its maker says that it was made; zero if it does not say. Came is when it came into the store.
	Created, Came time.Time
	// Layers are the digests of the uncompressed layers (diff ids), the lowest first.
	Layers []string
	// Config is how its containers are to be run.
	Config RunConfig
	// Pinned images are not removed as unused.
	Pinned bool
}

// Reference returns how to say which image it is that somebody calls by a name: by its digest in the name's
// repository, as a registry can be asked for it; in another one where only that has it; its id where none does.
func (i *Image) Reference(name string) string {
	ref, err := registry.ParseReference(name)
	for _, d := range i.Digests {
		if _, digest, _ := strings.Cut(d, "@"); err == nil && d == ref.Pinned(digest) {
			return d
		}
	}
	if len(i.Digests) > 0 {
		return i.Digests[0]
	}
	return i.ID
}

// Loaded reports whether the image has a name of a repository from which it has not come, such as one that an archive
// gave it: by that nobody could pull it again.
func (i *Image) Loaded() bool {
	return slices.ContainsFunc(i.Tags, func(tag string) bool {
		ref, err := registry.ParseReference(tag)
		return err == nil && !slices.ContainsFunc(i.Digests, func(d string) bool {
			_, digest, _ := strings.Cut(d, "@")
			return d == ref.Pinned(digest)
		})
	})
}

// ThisPlatform returns what images for this machine are made for, such as linux/amd64.
func ThisPlatform() string { return "linux/" + runtime.GOARCH }

// RunsHere reports whether an image is for this machine. One that does not say what it is for may be.
func (i Image) RunsHere() bool {
	system, rest, _ := strings.Cut(i.Platform, "/")
	architecture, _, _ := strings.Cut(rest, "/")
	return (system == "" || system == "linux") && (architecture == "" || architecture == runtime.GOARCH)
}

// RunConfig is how the containers of an image are to be run, as its maker says.
type RunConfig struct {
	// User is a name or number, or a user and a group with ':' between them; empty for root.
	User string
	// Env holds NAME=VALUE.
	Env []string
	// Entrypoint and Cmd are what runs: the first with the second as arguments.
	Entrypoint, Cmd []string
	// WorkingDir is where it runs; empty for /.
	WorkingDir string
	// StopSignal is a name such as SIGQUIT, or a number; empty for SIGTERM.
	StopSignal string
	// Volumes are the paths that expect a volume, sorted.
	Volumes []string
	// Labels are the image's labels.
	Labels map[string]string
}

// PullOptions are those of one pull.
type PullOptions struct {
	// Auth is whom the registry is to be asked as; nil for what Config.Registries finds.
	Auth *registry.Auth
	// Platform chooses from an index, such as linux/arm64/v8; this machine's if empty.
	Platform string
	// Progress is told how far the pull is, from several goroutines, but one at a time; nil for nobody.
	Progress func(Progress)
	// Again is told what went wrong with a request that is made again, from several goroutines; nil for the log.
	Again func(error)
}

// LoadOption is something more about one load.
type LoadOption func(*loadOptions)

type loadOptions struct {
	size     int64
	progress func(Progress)
	skipped  func(string)
}

// OfSize says how many bytes the archive has.
func OfSize(bytes int64) LoadOption { return func(o *loadOptions) { o.size = bytes } }

// TellProgress has f told how far the load is, as PullOptions.Progress is. Before its images are known, an archive is
// told of as a blob named Archive.
func TellProgress(f func(Progress)) LoadOption { return func(o *loadOptions) { o.progress = f } }

// TellSkipped has f told, in words, what is no image of a container, or an index without one for this machine.
func TellSkipped(f func(string)) LoadOption { return func(o *loadOptions) { o.skipped = f } }

// Archive stands for an archive as a whole.
const Archive = "archive"

// Progress is how far one blob of a pull, or of a load, is.
type Progress struct {
	// Digest is the blob's.
	Digest string
	// Phase is what is done with it.
	Phase Phase
	// Done and Total count compressed bytes; Total is 0 where it is not known.
	Done, Total int64
}

// Phase is a step of a blob of a pull.
type Phase string

// The phases, in their order. A blob that is there already, and unpacked, is Complete at once.
const (
	Downloading Phase = "Downloading" // from a registry
	Reading     Phase = "Reading"     // from an archive
	Unpacking   Phase = "Unpacking"
	Complete    Phase = "Complete"
)

// Flavour is the form of a store's layers; see package unpack.
type Flavour = unpack.Flavour

// RootRequest is what a container needs of the store.
type RootRequest struct {
	// ID is the container's, the name of its directory: letters, digits, '-', '_' and '.'.
	ID string
	// Image is the image's id.
	Image string
	// UIDs and GIDs say to which ids of the machine those of the container are mapped; empty for the same. The upper
	// directory, or copy, gets the mapped owner. The lower directories are shared: their mapping is the mounter's.
	UIDs, GIDs []IDMap
	// Copy asks for a copy of the files, because the caller has found that overlayfs cannot be had here.
	Copy bool
	// Mounts are the ids of images of which the container mounts the files, without writing to them.
	Mounts []string
	// Volumes is how many directories the container needs beside its root, for what its image declares as volumes.
	Volumes int
	// Most is how many bytes the container should have in its root and volumes at most; 0 for as many as there is room
	// for. Where the file system has quotas it cannot have many more (quota.Hard); a copy's files are not bound.
	Most int64
}

// IDMap maps Size ids of a container, from Container on, to those of the machine from Host on.
type IDMap struct{ Container, Host, Size uint32 }

// Root is what a container's root file system is made of.
type Root struct {
	// ID and Image are the request's.
	ID, Image string
	// Dir is the directory of this container in the store, absolute. The caller may make a mount point "merged" in it.
	Dir string
	// Copied is the directory that holds a copy of all files, to be used as it is; empty if overlayfs is to be mounted.
	Copied string
	// Lower are the layers' directories, absolute, the uppermost first, as overlayfs wants them; Upper and Work are its
	// other two.
	Lower       []string
	Upper, Work string
	// Mounts are what the files of RootRequest.Mounts are to be mounted of, in their order.
	Mounts []Files `json:",omitempty"`
	// Volumes are as many empty directories as RootRequest.Volumes asks for, with the mode 0755.
	Volumes []string `json:",omitempty"`
	// Options are further mount options of overlayfs: "userxattr" where the flavour is User.
	Options []string
	// Project is that by which Most is kept, 0 for none.
	Project quota.Project `json:",omitempty"`
	// Made is when it was made.
	Made time.Time
}

// Files is what the files of an image are to be mounted of, for reading only.
type Files struct {
	// Image is the image's id.
	Image string
	// Copied is the directory that holds a copy of all files; empty if overlayfs is to be mounted.
	Copied string `json:",omitempty"`
	// Lower are the layers' directories, absolute, the uppermost first. overlayfs needs two where it has no upper
	// directory: of an image with one layer an empty one is the last.
	Lower []string `json:",omitempty"`
}
