package inproc

import (
	"errors"
	"sync"

	"google.golang.org/grpc/metadata"
)

var errHeaderSent = errors.New("inproc: the header was sent already")

// transport carries the header and trailer of one call. It is what grpc.SetHeader and grpc.SetTrailer find
// in a handler's context.
type transport struct {
	method string
	// sent is closed when the header has been sent; nil for unary calls, whose callers look only at the end.
	sent chan struct{}

	mu       sync.Mutex
	header   metadata.MD
	trailer  metadata.MD
	isSent   bool
	finished bool
}

// Method returns the full method name.
func (t *transport) Method() string { return t.method }

// SetHeader adds to the header, unless it has been sent.
func (t *transport) SetHeader(md metadata.MD) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isSent || t.finished {
		return errHeaderSent
	}
	if len(md) > 0 {
		t.header = metadata.Join(t.header, md)
	}
	return nil
}

// SendHeader adds to the header and sends it.
func (t *transport) SendHeader(md metadata.MD) error {
	if err := t.SetHeader(md); err != nil {
		return err
	}
	t.flushHeader()
	return nil
}

// SetTrailer adds to the trailer.
func (t *transport) SetTrailer(md metadata.MD) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.finished && len(md) > 0 {
		t.trailer = metadata.Join(t.trailer, md)
	}
	return nil
}

// flushHeader sends the header if that has not happened yet, as the first message of a stream does.
func (t *transport) flushHeader() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isSent {
		return
	}
	t.isSent = true
	if t.sent != nil {
		close(t.sent)
	}
}

// finish freezes header and trailer when the handler has returned.
func (t *transport) finish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.finished = true
}

// result returns header and trailer as the client sees them.
func (t *transport) result() (header, trailer metadata.MD) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.header, t.trailer
}
