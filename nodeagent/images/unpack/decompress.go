package unpack

import (
	"bufio"
	"bytes"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Stream is an archive, decompressed. It is decompressed ahead, on a goroutine of its own, until Close.
type Stream struct {
	io.Reader
	close func()
}

// Close ends the decompression.
func (s *Stream) Close() { s.close() }

// Tee returns a reader of the stream that writes all it reads to w.
func (s *Stream) Tee(w io.Writer) io.Reader { return io.TeeReader(s.Reader, w) }

// Compression is how an archive is compressed.
type Compression string

// The kinds of compression, by the names of the programs for them. The last two are known but not understood: images
// do not have them.
const (
	None  Compression = ""
	Gzip  Compression = "gzip"
	Zstd  Compression = "zstd"
	XZ    Compression = "xz"
	Bzip2 Compression = "bzip2"
)

// IsUnderstood reports whether Decompress reads archives that are compressed so.
func (c Compression) IsUnderstood() bool { return c != XZ && c != Bzip2 }

// Magic is how many bytes of an archive CompressionOf needs.
const Magic = 10

// CompressionOf returns how an archive is compressed that begins with these bytes.
func CompressionOf(magic []byte) Compression {
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		return Gzip
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return Zstd
	case bytes.HasPrefix(magic, []byte{0xfd, '7', 'z', 'X', 'Z', 0}):
		return XZ
	// The level, any digit, lies between the two parts. The first alone may be the name of a file in a tar.
	case len(magic) >= Magic && bytes.HasPrefix(magic, []byte("BZh")) && bytes.HasPrefix(magic[4:], []byte("1AY&SY")):
		return Bzip2
	default:
		return None
	}
}

// zstdWindow is the most memory that a zstd archive may ask for: the window that encoders use at most unless told
// otherwise.
const zstdWindow = 128 << 20

// Decompress returns the archive in r, which may be compressed with gzip or zstd.
func Decompress(r *bufio.Reader) (*Stream, error) {
	magic, err := r.Peek(Magic)
	if err != nil && len(magic) == 0 {
		return nil, hostile("it is empty")
	}
	switch c := CompressionOf(magic); c {
	case Gzip:
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, hostile("gzip: %v", err)
		}
		return newStream(wrong{z, "gzip"}, func() { z.Close() }), nil
	case Zstd:
		z, err := zstd.NewReader(r, zstd.WithDecoderMaxWindow(zstdWindow), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, hostile("zstd: %v", err)
		}
		return newStream(wrong{z, "zstd"}, z.Close), nil
	case XZ, Bzip2:
		return nil, hostile("it is compressed with %s, and only gzip and zstd are understood", c)
	default:
		return newStream(r, func() {}), nil
	}
}

// wrong is a decoder whose errors are the archive's fault: what it reads from is a file.
type wrong struct {
	io.Reader
	what string
}

func (w wrong) Read(b []byte) (int, error) {
	n, err := w.Reader.Read(b)
	if err != nil && err != io.EOF { //nolint:errorlint // a Reader's EOF is bare
		err = fmt.Errorf("%w: %s: %w", ErrHostile, w.what, err)
	}
	return n, err
}

// chunk is some of the decompressed archive.
type chunk struct {
	data []byte
	err  error
}

// ahead reads what another goroutine has read already.
type ahead struct {
	full  <-chan chunk
	empty chan<- []byte
	now   chunk
	rest  []byte
}

// The chunks of a stream.
const (
	chunks    = 4
	chunkSize = 256 << 10
)

func newStream(r io.Reader, closeDecoder func()) *Stream {
	full, empty, stop := make(chan chunk, chunks), make(chan []byte, chunks), make(chan struct{})
	ended := make(chan struct{})
	for range chunks {
		empty <- make([]byte, chunkSize)
	}
	go func() {
		defer close(ended)
		for {
			var b []byte
			select {
			case b = <-empty:
			case <-stop:
				return
			}
			n, err := io.ReadFull(r, b)
			if err == io.ErrUnexpectedEOF {
				err = io.EOF
			}
			select {
			case full <- chunk{b[:n], err}:
			case <-stop:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return &Stream{Reader: &ahead{full: full, empty: empty}, close: func() {
		close(stop)
		<-ended
		closeDecoder()
	}}
}

// Read implements io.Reader.
func (a *ahead) Read(b []byte) (int, error) {
	for len(a.rest) == 0 {
		if a.now.err != nil {
			return 0, a.now.err
		}
		if a.now.data != nil {
			a.empty <- a.now.data[:cap(a.now.data)]
		}
		a.now = <-a.full
		a.rest = a.now.data
	}
	n := copy(b, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}
