package upgrade

import (
	"bufio"
	"encoding/binary"
	"net"
	"net/http"
)

const (
	// frameHeader is the length of what each frame of SPDY begins with; its last three bytes say how much follows.
	frameHeader = 8
	// keptFrame is how large a buffer is kept for the next frame: one of a full piece fits.
	keptFrame = frameHeader + piece
)

// wholeFrames is a connection that passes on SPDY's frames as a whole. The library writes each in three parts or more,
// which would be as many records of TLS, system calls, and messages of a WebSocket. One goroutine may write at a time.
//
// Invariant: pending is the beginning of one frame.
type wholeFrames struct {
	net.Conn
	pending []byte
}

// Write implements net.Conn. The end of b is the end of a frame or lies within one.
func (f *wholeFrames) Write(b []byte) (int, error) {
	f.pending = append(f.pending, b...)
	if len(f.pending) < frameHeader {
		return len(b), nil
	}
	if want := frameHeader + int(binary.BigEndian.Uint32(f.pending[4:])&0xffffff); len(f.pending) < want {
		return len(b), nil
	}
	_, err := f.Conn.Write(f.pending)
	if f.pending = f.pending[:0]; cap(f.pending) > 2*keptFrame {
		f.pending = nil
	}
	if err != nil {
		return 0, err
	}
	return len(b), nil
}

// framed is a ResponseWriter from which a connection of whole frames is taken.
type framed struct{ http.ResponseWriter }

// Hijack implements http.Hijacker.
func (w framed) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return &wholeFrames{Conn: conn}, rw, nil
}

// Unwrap is for http.ResponseController.
func (w framed) Unwrap() http.ResponseWriter { return w.ResponseWriter }
