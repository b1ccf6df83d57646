package images

import (
	"archive/tar"
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"monoplane.dev/nodeagent/images/unpack"
)

// content is an archive of images that can be read file by file, in any order.
type content interface {
	// open opens a file; fs.ErrNotExist if there is none.
	open(name string) (*os.File, error)
	// digest returns a file's SHA-256 and size.
	digest(name string) (string, int64, error)
}

// mostDocument is how large a document in an archive may be, in bytes.
const mostDocument = 8 << 20

// readDocument reads a small file; nil if there is none.
func readDocument(from content, name string) ([]byte, error) {
	f, err := from.open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, mostDocument+1))
	if err == nil && len(text) > mostDocument {
		err = fmt.Errorf("%w archive: %s has more than %d bytes", ErrInvalid, name, mostDocument)
	}
	return text, err
}

// layout is an OCI layout that is a directory.
type layout struct{ root *os.Root }

func (l layout) open(name string) (*os.File, error) { return l.root.Open(name) }

func (l layout) digest(name string) (string, int64, error) {
	f, err := l.root.Open(name)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), n, err
}

// spool is an archive whose files have been written to a directory, under numbers instead of their names.
type spool struct {
	dir   string
	files map[string]spooled
	// links are files by other names. Invariant: no name is in both.
	links map[string]string
	// written is how many files there are in the directory.
	written int
}

type spooled struct {
	number int
	digest string
	size   int64
}

// mostFiles is how many files an archive may have.
const mostFiles = 100_000

// spool writes the files of an archive into the new directory dir. Of entries with the same name the last one counts,
// as for tar.
func (s *Store) spool(ctx context.Context, dir string, r io.Reader) (*spool, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	buffered := bufio.NewReaderSize(r, 1<<20)
	magic, _ := buffered.Peek(unpack.Magic) // whoever reads next gets the error
	if c := unpack.CompressionOf(magic); !c.IsUnderstood() {
		return nil, fmt.Errorf("%w archive: it is compressed with %s, and only gzip and zstd are understood; unpack it "+
			"with %[2]s -d", ErrInvalid, c)
	}
	in, err := unpack.Decompress(buffered)
	if err != nil {
		return nil, fmt.Errorf("%w archive: %w", ErrInvalid, err)
	}
	defer in.Close()
	out := &spool{dir: dir, files: make(map[string]spooled), links: make(map[string]string)}
	for t := tar.NewReader(in); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%w archive: after %d files: %w", ErrInvalid, len(out.files), err)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		name := path.Clean("/" + h.Name)[1:]
		if out.written+len(out.links) >= mostFiles {
			return nil, fmt.Errorf("%w archive: it has more than %d files", ErrInvalid, mostFiles)
		}
		switch h.Typeflag {
		case tar.TypeReg:
			if h.Size > s.cfg.Limits.Blob {
				return nil, fmt.Errorf("%w archive: %s has %d bytes, more than %d", ErrInvalid, name, h.Size, s.cfg.Limits.Blob)
			}
			if err := s.room(h.Size); err != nil {
				return nil, err
			}
			if err := out.write(name, t); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		case tar.TypeSymlink:
			out.link(name, path.Join(path.Dir(name), h.Linkname))
		case tar.TypeLink:
			out.link(name, path.Clean("/" + h.Linkname)[1:])
		}
	}
	if len(out.files) == 0 {
		return nil, fmt.Errorf("%w archive: it holds no files, or is no tar", ErrInvalid)
	}
	return out, nil
}

// write adds a file. One that had the name before is overwritten, so that it takes no room any more.
func (p *spool) write(name string, r io.Reader) error {
	number := p.written
	if old, ok := p.files[name]; ok {
		number = old.number
	} else {
		p.written++
	}
	f, err := os.OpenFile(p.path(number), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, sum), r)
	delete(p.links, name)
	p.files[name] = spooled{number, "sha256:" + hex.EncodeToString(sum.Sum(nil)), n}
	return errors.Join(err, f.Close())
}

// link adds another name of a file. A link to itself is how tar writes a file that it is asked to add twice.
func (p *spool) link(name, target string) {
	if name == target {
		return
	}
	delete(p.files, name)
	p.links[name] = target
}

func (p *spool) path(number int) string { return filepath.Join(p.dir, strconv.Itoa(number)) }

func (p *spool) find(name string) (spooled, error) {
	const mostLinks = 10
	for range mostLinks {
		name = strings.TrimPrefix(path.Clean(name), "./")
		if f, ok := p.files[name]; ok {
			return f, nil
		}
		next, ok := p.links[name]
		if !ok {
			break
		}
		name = next
	}
	return spooled{}, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func (p *spool) open(name string) (*os.File, error) {
	f, err := p.find(name)
	if err != nil {
		return nil, err
	}
	return os.Open(p.path(f.number))
}

func (p *spool) digest(name string) (string, int64, error) {
	f, err := p.find(name)
	return f.digest, f.size, err
}
