package unpack

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// mostPath is the longest name of an entry, in bytes.
const mostPath = unix.PathMax

// Tar unpacks the uncompressed archive r into the directory dir, and reads r to its end.
func Tar(ctx context.Context, dir string, r io.Reader, o Options) (Stats, error) {
	t, err := openTree(dir, o.Flavour)
	if err != nil {
		return Stats{}, err
	}
	defer t.close()
	u := unpacker{Options: o, tree: t, buf: make([]byte, 256<<10), dirs: make(map[string]attributes), ctx: ctx}
	if err := u.all(tar.NewReader(r), dir); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w: %w", ErrHostile, err)
		}
		return Stats{}, err
	}
	// What follows the archive's end belongs to the layer's digest.
	if n, err := io.CopyBuffer(onlyWriter{io.Discard}, io.LimitReader(r, mostTrailer+1), u.buf); err != nil {
		return Stats{}, err
	} else if n > mostTrailer {
		return Stats{}, hostile("more than %d bytes follow its end", mostTrailer)
	}
	for p, below := range t.implied {
		if below {
			u.stats.Implied = append(u.stats.Implied, p)
		}
	}
	return u.stats, nil
}

// mostTrailer is how much may follow the end of an archive: writers fill up their last block.
const mostTrailer = 1 << 20

type onlyWriter struct{ io.Writer }

// unpacker unpacks one archive.
type unpacker struct {
	Options
	ctx   context.Context
	tree  *tree
	stats Stats
	buf   []byte
	// dirs are the attributes of directories by their real paths. They are set at the end: a directory may be closed to
	// its owner, and each new file changes its time.
	dirs map[string]attributes
	// unchecked counts the bytes that were written since the room on the disk was looked at.
	unchecked int64
}

// attributes are what an entry says of its file beside the content.
type attributes struct {
	mode     uint32
	uid, gid int
	mtime    time.Time // zero for whenever it was unpacked
	xattrs   map[string]string
}

func (u *unpacker) all(r *tar.Reader, dir string) error {
	for {
		if err := u.ctx.Err(); err != nil {
			return err
		}
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("after %d entries: %w", u.stats.Entries, blame(err))
		}
		if u.stats.Entries++; u.stats.Entries > u.Entries {
			return fmt.Errorf("%w: it has more than %d entries", ErrTooLarge, u.Entries)
		}
		if err := u.entry(h, r); err != nil {
			return fmt.Errorf("entry %q: %w", short(h.Name), blame(err))
		}
	}
	if err := u.tree.prune(dir); err != nil {
		return err
	}
	return blame(u.finish())
}

// blame says that an error is the archive's fault if it is: where it is no tar, and where it names what no file can
// have.
func blame(err error) error {
	if err == nil || errors.Is(err, ErrHostile) {
		return err
	}
	const ofTar = "archive/tar: " // Not all of its errors have names.
	isFault := strings.HasPrefix(err.Error(), ofTar)
	for _, e := range []error{unix.ENAMETOOLONG, unix.E2BIG, unix.ERANGE, unix.EINVAL, unix.EMLINK} {
		isFault = isFault || errors.Is(err, e)
	}
	if !isFault {
		return err
	}
	return fmt.Errorf("%w: %w", ErrHostile, err)
}

func short(name string) string {
	const most = 200
	if len(name) > most {
		return name[:most] + "…"
	}
	return name
}

// clean returns an entry's name without what means nothing; empty for the directory itself.
func clean(name string) (string, error) {
	if len(name) >= mostPath {
		return "", hostile("the name has %d bytes, more than %d", len(name), mostPath-1)
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", hostile("the name leads outside of the layer")
		}
	}
	return strings.TrimPrefix(path.Clean("/"+name), "/"), nil
}

func (u *unpacker) entry(h *tar.Header, r io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := clean(h.Name)
	if err != nil {
		return err
	}
	a := attributesOf(h)
	u.tree.trim()
	if name == "" {
		if h.Typeflag != tar.TypeDir {
			return hostile("the layer's own directory is given as something else")
		}
		u.dirs[""] = a
		return nil
	}
	parent, base := path.Split(name)
	at, err := u.tree.make(strings.TrimSuffix(parent, "/"))
	if err != nil {
		return err
	}
	if base == Opaque && at.path == "" {
		u.stats.Opaque = true
	}
	if hidden, ok := strings.CutPrefix(base, Whiteout); ok && u.Flavour != Plain {
		return u.hide(at, base, hidden)
	}
	real := path.Join(at.path, base)
	switch h.Typeflag {
	case tar.TypeDir:
		made, err := u.tree.mkdir(at, base)
		if err != nil {
			return err
		}
		delete(u.tree.implied, made.path)
		u.dirs[made.path] = a
		return nil
	case tar.TypeReg, tar.TypeGNUSparse:
		return u.file(at, base, h, a, r)
	case tar.TypeSymlink:
		if h.Linkname == "" {
			return hostile("it is a link to nothing")
		}
		return u.place(at, base, func() error { return unix.Symlinkat(h.Linkname, at.fd, base) }, &a)
	case tar.TypeLink:
		return u.link(at, base, h.Linkname)
	case tar.TypeFifo:
		return u.place(at, base, func() error { return unix.Mknodat(at.fd, base, unix.S_IFIFO|0o600, 0) }, &a)
	case tar.TypeChar, tar.TypeBlock:
		if h.Typeflag == tar.TypeChar && h.Devmajor == 0 && h.Devminor == 0 {
			return u.hide(at, Whiteout+base, base) // the same in overlayfs's own words
		}
		return u.device(at, base, h, a)
	default:
		return hostile("its type %q is unknown (%s)", h.Typeflag, real)
	}
}

func (u *unpacker) device(at handle, base string, h *tar.Header, a attributes) error {
	if !u.Owners {
		u.stats.Skipped++
		return nil
	}
	mode := uint32(unix.S_IFCHR)
	if h.Typeflag == tar.TypeBlock {
		mode = unix.S_IFBLK
	}
	const mostMajor, mostMinor = 1 << 12, 1 << 20
	if h.Devmajor < 0 || h.Devmajor >= mostMajor || h.Devminor < 0 || h.Devminor >= mostMinor {
		return hostile("there is no device %d:%d", h.Devmajor, h.Devminor)
	}
	dev := int(unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor)))
	return u.place(at, base, func() error { return unix.Mknodat(at.fd, base, mode|0o600, dev) }, &a)
}

// hide notes that base is removed from what is below, or all that is in the directory.
func (u *unpacker) hide(at handle, marker, base string) error {
	switch {
	case marker == Opaque:
		return u.tree.opaque(at)
	case strings.HasPrefix(base, Whiteout): // how aufs kept its books
		return nil
	case base == "" || base == "." || base == "..":
		return hostile("it removes nothing that could be there")
	}
	return u.tree.whiteout(at, base)
}

// file unpacks a regular file.
func (u *unpacker) file(at handle, base string, h *tar.Header, a attributes, r io.Reader) error {
	if h.Size > u.Bytes-u.stats.Bytes {
		return fmt.Errorf("%w: its files have more than %d bytes", ErrTooLarge, u.Bytes)
	}
	var fd int
	err := u.place(at, base, func() (err error) {
		fd, err = unix.Openat(at.fd, base, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		return err
	}, nil)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := u.copy(fd, r); err != nil {
		return err
	}
	return u.setFile(fd, at, base, a)
}

// roomEvery is how many bytes are written between two looks at the room that is left.
const roomEvery = 16 << 20

func (u *unpacker) copy(fd int, r io.Reader) error {
	for {
		n, err := r.Read(u.buf)
		for b := u.buf[:n]; len(b) > 0; {
			m, err := unix.Write(fd, b)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				return err
			}
			b = b[m:]
		}
		u.stats.Bytes += int64(n)
		if u.unchecked += int64(n); u.unchecked >= roomEvery {
			u.unchecked = 0
			if err := errors.Join(u.ctx.Err(), room(fd, u.Reserve)); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func room(fd int, reserve int64) error {
	var s unix.Statfs_t
	if err := unix.Fstatfs(fd, &s); err != nil {
		return err
	}
	if left := int64(s.Bavail) * s.Bsize; left < reserve {
		return fmt.Errorf("%w: %d bytes are available, and %d are to stay so", ErrNoRoom, left, reserve)
	}
	return nil
}

// link makes a hard link to a file of the same layer.
func (u *unpacker) link(at handle, base, target string) error {
	target, err := clean(target)
	if err != nil {
		return fmt.Errorf("hard link to %q: %w", short(target), err)
	}
	parent, name := path.Split(target)
	from, err := u.tree.find(strings.TrimSuffix(parent, "/"))
	if err == nil {
		to := path.Join(at.path, base)
		if path.Join(from.path, name) == to {
			return nil // to itself
		}
		if below(from.path, to) {
			return hostile("it is a hard link to %q, which it would replace", short(target))
		}
		err = u.place(at, base, func() error { return unix.Linkat(from.fd, name, at.fd, base, 0) }, nil)
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EPERM) {
		return hostile("it is a hard link to %q, which is no file of this layer", short(target))
	}
	return err
}

// place makes something at base, in place of what is there, and gives it attributes.
func (u *unpacker) place(at handle, base string, make func() error, a *attributes) error {
	err := make()
	if errors.Is(err, unix.EEXIST) {
		if err := u.forget(at, base); err != nil {
			return err
		}
		err = make()
	}
	if err != nil || a == nil {
		return err
	}
	return u.setOther(at, base, *a)
}

// forget removes what is at base.
func (u *unpacker) forget(at handle, base string) error {
	real := path.Join(at.path, base)
	for p := range u.dirs {
		if below(p, real) {
			delete(u.dirs, p)
		}
	}
	return u.tree.remove(at, base)
}
