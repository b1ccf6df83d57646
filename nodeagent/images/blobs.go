package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"

	"monoplane.dev/nodeagent/images/registry"
)

// hasBlob reports whether a blob is there, as large as it should be.
func (s *Store) hasBlob(b blob) (bool, error) {
	name, err := hexOf(b.Digest)
	if err != nil {
		return false, err
	}
	info, err := os.Stat(s.path(blobsDir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.Size() == b.Size, err
}

// readBlob returns a small blob.
func (s *Store) readBlob(digest string) ([]byte, error) {
	name, err := hexOf(digest)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(s.path(blobsDir, name))
}

func (s *Store) openBlob(digest string) (*os.File, error) {
	name, err := hexOf(digest)
	if err != nil {
		return nil, err
	}
	return os.Open(s.path(blobsDir, name))
}

// fetchBlob sees to it that a blob is there: get brings it, from where the sink ends. Of several who want it at the
// same time one gets it, and the others wait.
func (s *Store) fetchBlob(
	ctx context.Context, b blob, get func(context.Context, registry.Sink) error, told func(int64),
) error {
	name, err := hexOf(b.Digest)
	if err != nil {
		return err
	}
	for {
		if have, err := s.hasBlob(b); err != nil || have {
			return err
		}
		f, err := os.OpenFile(s.path(partialDir, name), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		done, err := s.fillBlob(ctx, f, name, b, get, told)
		f.Close()
		if done || err != nil {
			return err
		}
	}
}

// fillBlob is fetchBlob with the file of the partial download. Done is false when another process has taken it away.
func (s *Store) fillBlob(
	ctx context.Context, f *os.File, name string, b blob, get func(context.Context, registry.Sink) error,
	told func(int64),
) (done bool, err error) {
	if err := lockFile(ctx, f); err != nil {
		return false, err
	}
	mine, err := f.Stat()
	if err != nil {
		return false, err
	}
	switch now, err := os.Stat(f.Name()); {
	case errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(mine, now):
		return false, nil
	case err != nil:
		return false, err
	}
	// Another one may have finished between the look for the blob and the creation of this file.
	if have, err := s.hasBlob(b); err != nil || have {
		return have, errors.Join(err, os.Remove(f.Name()))
	}
	if err := s.room(b.Size - mine.Size()); err != nil {
		return false, err
	}
	in := &ingest{file: f, sum: sha256.New(), told: told}
	resumed := mine.Size() > 0
	if err := in.resume(b.Size); err != nil {
		return false, err
	}
	for {
		if err := get(ctx, in); err != nil {
			if in.size == 0 || errors.Is(err, registry.ErrWrong) || errors.Is(err, registry.ErrRefused) {
				err = errors.Join(err, os.Remove(f.Name()))
			}
			return false, err
		}
		got := "sha256:" + hex.EncodeToString(in.sum.Sum(nil))
		if got == b.Digest && in.size == b.Size {
			return true, os.Rename(f.Name(), s.path(blobsDir, name))
		}
		if !resumed {
			return false, errors.Join(fmt.Errorf("%w: blob %s has the digest %s and %d of %d bytes", registry.ErrWrong,
				b.Digest, got, in.size, b.Size), os.Remove(f.Name()))
		}
		// What was there from earlier may be what is wrong.
		resumed = false
		if err := in.Reset(); err != nil {
			return false, err
		}
	}
}

// putBlob writes a small blob that is in memory.
func (s *Store) putBlob(ctx context.Context, b blob, content []byte) error {
	return s.fetchBlob(ctx, b, func(_ context.Context, to registry.Sink) error {
		if err := to.Reset(); err != nil {
			return err
		}
		_, err := to.Write(content)
		return err
	}, nil)
}

// ingest is a blob that is coming. Invariant: sum is that of the file's first size bytes, and the file has no more.
type ingest struct {
	file *os.File
	size int64
	sum  hash.Hash
	told func(int64)
}

// resume takes over what an earlier download has brought, unless it is too much.
func (in *ingest) resume(most int64) error {
	n, err := io.Copy(in.sum, io.LimitReader(in.file, most+1))
	if err != nil {
		return err
	}
	if in.size = n; n > most {
		return in.Reset()
	}
	in.tell()
	return nil
}

// Size implements registry.Sink.
func (in *ingest) Size() int64 { return in.size }

// Reset implements registry.Sink.
func (in *ingest) Reset() error {
	in.size = 0
	in.sum.Reset()
	if err := in.file.Truncate(0); err != nil {
		return err
	}
	_, err := in.file.Seek(0, io.SeekStart)
	return err
}

// Write implements registry.Sink. After an error of the disk the file is as long as the size says.
func (in *ingest) Write(b []byte) (int, error) {
	if _, err := in.file.Write(b); err != nil {
		_, seek := in.file.Seek(in.size, io.SeekStart)
		return 0, errors.Join(err, in.file.Truncate(in.size), seek)
	}
	in.sum.Write(b)
	in.size += int64(len(b))
	in.tell()
	return len(b), nil
}

func (in *ingest) tell() {
	if in.told != nil {
		in.told(in.size)
	}
}
