package rest

import (
	"context"
	"net/http"
	"time"

	"monoplane.dev/apiserver/rest/compress"
	"monoplane.dev/apiserver/warning"
)

// buffered is the size up to which net/http keeps a write, which then cannot block.
const buffered = 2 << 10

// writer is the client's end of an answer. It sends the header once, with the code and the warnings, and gives up on a
// client that does not take in time what is written.
type writer struct {
	http.ResponseWriter

	// code is sent unless the answer is an error; what has been sent, once begun. Size is how many bytes were written.
	code, size int

	warnings *warning.Collector
	// begun is set once the header has been sent.
	begun bool
	// stall is how long one write may take; guard ends it.
	stall time.Duration
	guard *time.Timer
	// gone is set when the client does not take any more. What is written after that goes nowhere: there is nobody to
	// tell, but the service of a stream, which cancel ends.
	gone   bool
	cancel context.CancelFunc
	// pool has what compresses an answer that is long; nil where none is compressed. packed does, once it has begun.
	pool   *compress.Pool
	packed *compress.Writer
}

// Unwrap is for http.ResponseController, which takes over the connections of protocols that are switched to.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader sends the header, unless that has been done.
func (w *writer) WriteHeader(code int) {
	if w.begun {
		return
	}
	w.begun, w.code = true, code
	if w.warnings != nil {
		h := w.Header()
		for _, text := range w.warnings.Texts() {
			h["Warning"] = append(h["Warning"], warning.Header(text))
		}
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write writes, behind the header. It does not fail.
func (w *writer) Write(b []byte) (int, error) {
	if !w.begun && w.pool != nil && len(b) >= compress.Threshold {
		w.pack()
	}
	w.WriteHeader(w.code)
	if w.packed != nil {
		_, _ = w.packed.Write(b) // to plain, which does not fail
		return len(b), nil
	}
	return plain{w}.Write(b)
}

// pack compresses what is written from now on.
func (w *writer) pack() {
	packed, err := w.pool.Writer(plain{w})
	if err != nil {
		return
	}
	w.packed = packed
	h := w.Header()
	h.Del("Content-Length")
	h.Set("Content-Encoding", "gzip")
	h.Add("Vary", "Accept-Encoding")
}

// end writes what is left of an answer that is whole.
func (w *writer) end() {
	if w.packed != nil {
		_ = w.packed.Close() // as in Write
	}
}

// plain writes for a writer, as it is, what belongs behind its header.
type plain struct{ *writer }

// Write writes. It does not fail.
func (w plain) Write(b []byte) (int, error) {
	w.size += len(b)
	switch {
	case len(b) == 0 || w.gone:
	case len(b) <= buffered:
		_, err := w.ResponseWriter.Write(b)
		w.took(err)
	default:
		w.arm()
		_, err := w.ResponseWriter.Write(b)
		w.guard.Stop()
		w.took(err)
	}
	return len(b), nil
}

// FlushError sends what has been written. It does not fail.
func (w *writer) FlushError() error {
	if w.gone {
		return nil
	}
	w.arm()
	err := http.NewResponseController(w.ResponseWriter).Flush()
	w.guard.Stop()
	w.took(err)
	return nil
}

// arm begins the time in which the client has to take what is written next.
func (w *writer) arm() {
	if w.guard != nil {
		w.guard.Reset(w.stall)
		return
	}
	client := w.ResponseWriter
	w.guard = time.AfterFunc(w.stall, func() { _ = http.NewResponseController(client).SetWriteDeadline(time.Now()) })
}

// took notes how a write went.
func (w *writer) took(err error) {
	if err != nil && !w.gone {
		w.gone = true
		w.cancel()
	}
}
