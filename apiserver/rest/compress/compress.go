// Package compress writes answers with gzip for clients that take it.
//
// Compressing a large answer takes several times as long as making it, and a client on the same machine has nothing of
// it: its programming language asks for gzip by itself. So such answers are compressed for other machines only, as
// little as gzip allows, and short ones for nobody.
package compress

import (
	"bufio"
	"compress/gzip"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
)

// Threshold is the size in bytes from which an answer is compressed, that of Kubernetes.
const Threshold = 128 << 10

// Accepted says whether the client takes an answer with gzip.
func Accepted(r *http.Request) bool {
	for _, header := range r.Header["Accept-Encoding"] {
		for clause := range strings.SplitSeq(header, ",") {
			if name, weight, _ := strings.Cut(clause, ";"); strings.TrimSpace(name) == "gzip" {
				_, q, _ := strings.Cut(weight, "=")
				n, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
				return err != nil || n > 0
			}
		}
	}
	return false
}

// Pays says whether the client takes gzip and is on another machine.
func Pays(r *http.Request) bool {
	if len(r.Header["Accept-Encoding"]) == 0 {
		return false
	}
	// A client in the same process has no such address.
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && !peer.Addr().Unmap().IsLoopback() && Accepted(r)
}

// buffered is how much of what gzip writes, which is a few bytes at a time, is passed on at once.
const buffered = 32 << 10

// Pool makes writers out of those that are not in use any more, because one has a megabyte of tables. Its zero value
// is an empty pool. It is safe for concurrent use.
type Pool struct{ free sync.Pool }

// Writer compresses what is written to it.
type Writer struct {
	pool *Pool
	z    *gzip.Writer
	out  *bufio.Writer
}

// Writer returns a writer that writes to w. It is to be closed.
func (p *Pool) Writer(w io.Writer) (*Writer, error) {
	if used, ok := p.free.Get().(*Writer); ok {
		used.out.Reset(w)
		used.z.Reset(used.out)
		return used, nil
	}
	out := bufio.NewWriterSize(w, buffered)
	z, err := gzip.NewWriterLevel(out, gzip.BestSpeed)
	return &Writer{p, z, out}, err
}

// Write implements io.Writer.
func (w *Writer) Write(b []byte) (int, error) { return w.z.Write(b) }

// Close ends what has been written, and gives the writer back.
func (w *Writer) Close() error {
	err := w.z.Close()
	if flushed := w.out.Flush(); err == nil {
		err = flushed
	}
	w.out.Reset(io.Discard)
	w.pool.free.Put(w)
	return err
}
