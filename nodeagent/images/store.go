package images

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"monoplane.dev/internal/datadir"
	"monoplane.dev/nodeagent/images/registry"
	"monoplane.dev/nodeagent/images/unpack"
)

// The kinds of errors, found with errors.Is. Those of registries are in package registry.
var (
	// ErrNotFound is returned for an image, or root, that is not in the store.
	ErrNotFound = errors.New("not found")
	// ErrInUse is returned for removing an image that a container's root is made of.
	ErrInUse = errors.New("in use")
	// ErrInvalid is returned for a reference, image or archive that breaks the rules; trying again does not help.
	ErrInvalid = errors.New("invalid")
)

// Store is an open store. Its methods may be called from several goroutines.
type Store struct {
	cfg      Config
	dir      *datadir.Dir
	registry *registry.Client
	flavour  Flavour
	// overlays says whether roots can be overlays; it is asked of the file system once.
	overlays func() bool
	// unpacking has a place for each layer that may be unpacked at a time.
	unpacking chan struct{}

	mu   sync.Mutex // held with the lock of the directory
	own  *os.File   // the lock of tmp/NAME; nil once the store is closed
	name string     // tmp/NAME

	serial atomic.Int64 // of what is made in tmp/NAME
	syncs  sync.WaitGroup
}

// The folders of a store.
const (
	blobsDir   = "blobs"
	layersDir  = "layers"
	topsDir    = "tops"
	rootsDir   = "roots"
	partialDir = "partial"
	tmpDir     = "tmp"
	emptyDir   = "empty"
)

// format begins the file of that name.
const format = "monoplane images 1 "

// Open opens the store and removes what processes that died have left half done.
func Open(cfg Config) (*Store, error) {
	cfg.Limits = cfg.Limits.complete()
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	client, err := registry.New(cfg.Registries)
	if err != nil {
		return nil, err
	}
	dir, err := datadir.Make(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("image store: %w", err)
	}
	if err := dir.Private(); err != nil {
		return nil, fmt.Errorf("image store: %w", err)
	}
	s := &Store{cfg: cfg, dir: dir, registry: client, unpacking: make(chan struct{}, unpackers())}
	s.overlays = sync.OnceValue(s.tryOverlay)
	if err := s.open(); err != nil {
		return nil, fmt.Errorf("image store %s: %w", dir.Path(), err)
	}
	return s, nil
}

// Check returns why the store cannot be opened, such as that it belongs to another user; nil if it can. Like Open, it
// makes the directory where it is missing.
func Check(cfg Config) error {
	s, err := Open(cfg)
	if err != nil {
		return err
	}
	return s.Close()
}

func (s *Store) open() error {
	for _, name := range []string{blobsDir, layersDir, topsDir, rootsDir, partialDir, tmpDir, emptyDir} {
		if _, err := s.dir.Make(name); err != nil {
			return err
		}
	}
	f, err := s.dir.OpenFile("lock", os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := lockFile(context.Background(), f); err != nil {
		return err
	}
	if s.flavour, err = s.readFormat(); err != nil {
		return err
	}
	if err := s.claim(); err != nil {
		return err
	}
	if err := s.recover(); err != nil {
		return errors.Join(err, s.release())
	}
	return nil
}

// readFormat returns the flavour of the store's layers, which its first process has chosen.
func (s *Store) readFormat() (Flavour, error) {
	can, err := unpack.Probe(s.path(tmpDir))
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(s.path("format"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if want := format + string(can) + "\n"; strings.HasPrefix(want, string(text)) && want != string(text) {
		return can, s.dir.Write("format", []byte(want)) // There is none, or not all of it.
	}
	has, ok := strings.CutPrefix(strings.TrimSpace(string(text)), format)
	switch {
	case !ok:
		return "", fmt.Errorf("it was written by another version: its file format begins with %.40q, not with %q", text,
			format)
	case has != string(can):
		return "", fmt.Errorf("its layers are of the kind %q, and this process can use only the kind %q: it was made by a "+
			"process with other rights, or moved to another file system; use another directory", has, can)
	}
	return can, nil
}

// claim makes this process's own folder.
func (s *Store) claim() error {
	name, err := os.MkdirTemp(s.path(tmpDir), strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(name, "lock"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	s.own, s.name = f, name
	return tryLock(f)
}

// release gives the folder up.
func (s *Store) release() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own == nil {
		return nil
	}
	err := errors.Join(s.removeAll(s.name), s.own.Close())
	s.own = nil
	return err
}

// Close waits until what was pulled has reached the disk.
func (s *Store) Close() error {
	s.syncs.Wait()
	return s.release()
}

// Flavour returns the form of the store's layers.
func (s *Store) Flavour() Flavour { return s.flavour }

// Dir returns the store's directory.
func (s *Store) Dir() string { return s.dir.Path() }

func (s *Store) path(elem ...string) string {
	return filepath.Join(append([]string{s.dir.Path()}, elem...)...)
}

// scratch returns a new path in this process's own folder.
func (s *Store) scratch(what string) string {
	return filepath.Join(s.name, what+"-"+strconv.FormatInt(s.serial.Add(1), 10))
}

// hexOf returns the hex digits of a digest, of the only kind that is supported.
func hexOf(digest string) (string, error) {
	hex, ok := strings.CutPrefix(digest, "sha256:")
	const digits = 64
	if !ok || len(hex) != digits || strings.Trim(hex, "0123456789abcdef") != "" {
		return "", fmt.Errorf("%w digest %.100q: it is not sha256: and 64 hex digits", ErrInvalid, digest)
	}
	return hex, nil
}
