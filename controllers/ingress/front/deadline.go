package front

import (
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// The deadlines of a request move on with it: a client may take as long as it likes for all of a body, but not for the
// next piece of it. They are taken away again between the pieces, since there a stream may rest: with HTTP/2, a
// deadline that passes ends the stream although nobody waits for anything.

// paced is a request's body that must not stand still for longer than limit while somebody reads it.
type paced struct {
	io.ReadCloser

	control *http.ResponseController
	limit   time.Duration
	// err is what went wrong with the client's side. It is read on another goroutine than it is written on.
	err atomic.Pointer[error]
}

// failure returns what went wrong with the client's side; nil while nothing did.
func (p *paced) failure() error {
	if p == nil {
		return nil
	}
	if err := p.err.Load(); err != nil {
		return *err
	}
	return nil
}

func (p *paced) Read(b []byte) (int, error) {
	// Errors of deadlines mean that the connection has none, as in tests that record answers.
	_ = p.control.SetReadDeadline(time.Now().Add(p.limit))
	n, err := p.ReadCloser.Read(b)
	_ = p.control.SetReadDeadline(time.Time{})
	if err != nil && err != io.EOF {
		p.err.Store(&err)
	}
	return n, err
}

// pacing is a ResponseWriter whose client must not stand still for longer than limit while something is written.
type pacing struct {
	http.ResponseWriter

	control *http.ResponseController
	limit   time.Duration
	// body is that of the request; nil for none.
	body *paced
}

// Unwrap lets http.ResponseController find what the writer can besides.
func (p *pacing) Unwrap() http.ResponseWriter { return p.ResponseWriter }

func (p *pacing) Write(b []byte) (int, error) {
	_ = p.control.SetWriteDeadline(time.Now().Add(p.limit))
	n, err := p.ResponseWriter.Write(b)
	_ = p.control.SetWriteDeadline(time.Time{})
	return n, err
}

// FlushError sends what was written.
func (p *pacing) FlushError() error {
	_ = p.control.SetWriteDeadline(time.Now().Add(p.limit))
	err := p.control.Flush()
	_ = p.control.SetWriteDeadline(time.Time{})
	return err
}

// finish bounds the time in which the server reads what is left of the request and sends the rest of the answer, after
// the handler has returned. The next request on the connection has deadlines of its own.
func (p *pacing) finish() {
	now := time.Now()
	read := now.Add(p.limit)
	if p.body.failure() != nil {
		read = now // no more of it comes in time
	}
	_ = p.control.SetReadDeadline(read)
	_ = p.control.SetWriteDeadline(now.Add(2 * p.limit))
}
