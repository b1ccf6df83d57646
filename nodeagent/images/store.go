package images

import (
	"context"
	"errors"
	"io"
)

// The kinds of errors, found with errors.Is.
var (
	// ErrNotFound is returned for an image, or root, that is not in the store.
	ErrNotFound = errors.New("not found")
	// ErrInUse is returned for removing an image that a container's root is made of.
	ErrInUse = errors.New("in use")
	// ErrInvalid is returned for a reference, image or archive that breaks the rules; trying again does not help.
	ErrInvalid = errors.New("invalid")
)

var errLater = errors.New("this part of the store is being built")

// Store is an open store. Its methods may be called from several goroutines.
type Store struct{ cfg Config }

// Open opens the store and removes what processes that died have left half done.
func Open(cfg Config) (*Store, error) { return nil, errLater }

// Close waits until what was pulled has reached the disk.
func (s *Store) Close() error { return nil }

// Flavour returns the form of the store's layers.
func (s *Store) Flavour() Flavour { return User }

// Pull gets an image from its registry and unpacks it. Reference is a name with a tag or digest or both; without, the
// tag is latest. Errors are those of package registry, ErrInvalid, and those of the disk.
func (s *Store) Pull(ctx context.Context, reference string, opts PullOptions) (Image, error) {
	return Image{}, errLater
}

// Image returns the image that a tag, a name with a digest, an id, or the unambiguous beginning of an id, at least 4
// hex digits, stands for; ErrNotFound if there is none.
func (s *Store) Image(reference string) (Image, error) { return Image{}, errLater }

// List returns all images, sorted by id.
func (s *Store) List() ([]Image, error) { return nil, errLater }

// Tag gives an image a further name; an image that has had it loses it.
func (s *Store) Tag(ctx context.Context, reference, tag string) error { return errLater }

// Remove removes a tag; the image too, if the tag was its last, or if reference is its id. ErrInUse if a container's
// root is made of it.
func (s *Store) Remove(ctx context.Context, reference string) error { return errLater }

// Load adds the images of an archive: one of docker save, or an OCI layout as a tar, compressed or not.
func (s *Store) Load(ctx context.Context, r io.Reader) ([]Image, error) { return nil, errLater }

// LoadDir is as Load for an OCI layout that is a directory.
func (s *Store) LoadDir(ctx context.Context, dir string) ([]Image, error) { return nil, errLater }

// Save writes images as a tar that is both an OCI layout and an archive of docker save.
func (s *Store) Save(ctx context.Context, w io.Writer, references ...string) error { return errLater }

// Mountable makes what a container's root file system is to be mounted of. Asked again for the same container it
// returns what is there; for the same container and another image it fails.
func (s *Store) Mountable(ctx context.Context, req RootRequest) (Root, error) { return Root{}, errLater }

// Root returns what Mountable has made for a container; ErrNotFound if it has not.
func (s *Store) Root(id string) (Root, error) { return Root{}, errLater }

// Release removes what Mountable has made for a container. Nothing may be mounted of it any more. It is no error if
// there is nothing.
func (s *Store) Release(ctx context.Context, id string) error { return errLater }

// Roots returns all roots, sorted by id, so that those of containers that are gone can be released.
func (s *Store) Roots() ([]Root, error) { return nil, errLater }

// RootUsage returns what a container has written in its root: bytes on the disk, and inodes.
func (s *Store) RootUsage(ctx context.Context, id string) (Usage, error) { return Usage{}, errLater }

// Usage returns what images take: blobs and layers, without the roots of containers.
func (s *Store) Usage(ctx context.Context) (Usage, error) { return Usage{}, errLater }

// Usage is what something takes on the disk.
type Usage struct{ Bytes, Inodes int64 }
