package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

func megabytes(rate float64) string { return fmt.Sprintf("%.0f MB/s", rate/1e6) }

// transfer asks for so many bytes, or sends them, and returns how many a second.
func transfer(conn io.ReadWriter, direction string, size int64) (float64, error) {
	begin := time.Now()
	if _, err := fmt.Fprintf(conn, "%s %d\n", direction, size); err != nil {
		return 0, err
	}
	want := size
	if direction == "to" {
		if _, err := io.CopyN(conn, zeros{}, size); err != nil {
			return 0, err
		}
		want = 1 // What says that all has arrived.
	}
	if _, err := io.CopyN(io.Discard, conn, want); err != nil {
		return 0, err
	}
	return float64(size) / time.Since(begin).Seconds(), nil
}

// zeros is a reader of as many zeros as are wanted.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// answerTransfer is the other end of transfer.
func answerTransfer(conn io.ReadWriter) error {
	in := bufio.NewReader(conn)
	line, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	var direction string
	var size int64
	if _, err := fmt.Sscan(line, &direction, &size); err != nil {
		return err
	}
	if direction == "from" {
		_, err = io.CopyN(conn, zeros{}, size)
		return err
	}
	if _, err = io.CopyN(io.Discard, in, size); err != nil {
		return err
	}
	_, err = conn.Write([]byte{0})
	return err
}

// servePort serves transfers until end is called.
func servePort(l net.Listener) (end func()) {
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer conn.Close()
				_ = answerTransfer(conn) // The other end sees that it has ended.
			})
		}
	})
	return func() {
		_ = l.Close()
		conns.Wait()
	}
}

// bareCopy is a TLS server of transfers, with nothing before or behind it.
type bareCopy struct {
	address string
	config  *tls.Config
	end     func()
}

func newBareCopy(e *env) (*bareCopy, error) {
	serving, calling, err := bothEnds(e)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	end := servePort(tls.NewListener(l, serving))
	return &bareCopy{address: l.Addr().String(), config: calling, end: end}, nil
}

// dial connects.
func (b *bareCopy) dial(ctx context.Context) (io.ReadWriteCloser, error) {
	dialer := tls.Dialer{Config: b.config}
	return dialer.DialContext(ctx, "tcp", b.address)
}
