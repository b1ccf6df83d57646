package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Sink takes a blob. Its errors end the download.
type Sink interface {
	io.Writer
	// Size is how many bytes it has.
	Size() int64
	// Reset throws them away.
	Reset() error
}

// sinkError is an error of a sink, which is not the registry's.
type sinkError struct{ error }

func (e sinkError) Unwrap() error { return e.error }

// Blob downloads a blob to a sink, from where the sink ends, and no more than its size. The sink holds as many bytes
// as the blob afterwards; whether they are right is for the caller to check.
func (r *Repository) Blob(ctx context.Context, d Descriptor, to Sink) error {
	return r.each(ctx, func(s *source) (bool, error) {
		before := to.Size()
		err := s.blob(ctx, d, to)
		return to.Size() > before, err
	})
}

func (s *source) blob(ctx context.Context, d Descriptor, to Sink) error {
	at := to.Size()
	if at > d.Size {
		if err := to.Reset(); err != nil {
			return sinkError{err}
		}
		at = 0
	}
	if at == d.Size {
		return nil
	}
	header := http.Header{"Accept": {"*/*"}}
	if at > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", at))
	}
	resp, err := s.get(ctx, "/blobs/"+d.Digest, header)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	// An answer that is none, such as that the registry is overloaded, leaves what has come.
	if err := judgeAnswer(resp, http.StatusOK, http.StatusPartialContent,
		http.StatusRequestedRangeNotSatisfiable); err != nil {
		return err
	}
	if at > 0 && (resp.StatusCode != http.StatusPartialContent || !startsAt(resp.Header.Get("Content-Range"), at)) {
		if err := to.Reset(); err != nil {
			return sinkError{err}
		}
		if at = 0; resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%w: it cannot go on where the download broke off", ErrUnavailable)
		}
	}
	if resp.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return fmt.Errorf("%w: it says that there is no blob %s to begin with", ErrWrong, d.Digest)
	}
	if n := resp.ContentLength; n >= 0 && at+n > d.Size {
		return fmt.Errorf("%w: blob %s has %d bytes, more than the %d that the manifest says", ErrWrong, d.Digest, at+n,
			d.Size)
	}
	return s.read(ctx, resp.Body, d, to)
}

// startsAt reports whether a Content-Range begins at a byte.
func startsAt(contentRange string, at int64) bool {
	first, _, ok := strings.Cut(strings.TrimPrefix(contentRange, "bytes "), "-")
	n, err := strconv.ParseInt(first, 10, 64)
	return ok && err == nil && n == at
}

func (s *source) read(ctx context.Context, body io.Reader, d Descriptor, to Sink) error {
	buf := make([]byte, 128<<10)
	for {
		n, err := body.Read(buf)
		if to.Size()+int64(n) > d.Size {
			return fmt.Errorf("%w: blob %s has more than the %d bytes that the manifest says", ErrWrong, d.Digest, d.Size)
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return sinkError{err}
		}
		switch {
		case errors.Is(err, io.EOF) && to.Size() == d.Size:
			return nil
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return fmt.Errorf("%w: blob %s ended after %d of %d bytes", ErrUnavailable, d.Digest, to.Size(), d.Size)
		case err != nil:
			return judgeBody(ctx, err)
		}
	}
}
