package ocinode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monoplane.dev/internal/share"
)

// taken is a node namespace in which somebody has a port.
type taken struct{ port uint16 }

func (n taken) Listen(_ context.Context, address netip.AddrPort) (net.Listener, error) {
	if address.Port() == n.port {
		return nil, fmt.Errorf("%s cannot be used: %w", address, unix.EADDRINUSE)
	}
	return at{address: address}, nil
}

// at is a listener that does nothing.
type at struct {
	net.Listener
	address netip.AddrPort
}

func (l at) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.address) }

// Somebody in the node namespace may have been given the port of the API: pods reach the API all the same.
//
// spec: NET-1
func TestPortOfAPIIsTaken(t *testing.T) {
	const own = "10.244.0.1"
	for _, c := range []struct{ port, want uint16 }{{port: 6443, want: 0}, {port: 80, want: 6443}} {
		l, err := listenForAPI(t.Context(), taken{c.port}, netip.MustParseAddrPort(own+":6443"))
		if err != nil {
			t.Fatal(err)
		}
		if at, want := l.Addr().String(), fmt.Sprint(own, ":", c.want); at != want {
			t.Errorf("pods reach the API at %s, not at %s, when port %d is taken", at, want, c.port)
		}
	}
	if _, err := listenForAPI(t.Context(), taken{}, netip.MustParseAddrPort(own+":0")); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("without any port: %v", err)
	}
}

// lacking is a listener for which there are no descriptors now and then.
type lacking struct {
	net.Listener
	failed bool
}

func (l *lacking) Accept() (net.Conn, error) {
	if l.failed = !l.failed; l.failed {
		return nil, &net.OpError{Op: "accept", Err: unix.EMFILE}
	}
	return l.Listener.Accept()
}

// A pod's connections to the API take their two sockets here and no pipes. However many it opens, and whatever the
// process lacks meanwhile, another pod reaches the API.
//
// spec: NET-1
func TestForward(t *testing.T) {
	listen := func() net.Listener {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	api, inner := listen(), listen()
	go func() {
		for {
			c, err := api.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = c.Write([]byte("hello"))
				_, _ = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
			}()
		}
	}()
	const most = 8
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- forward(ctx, &lacking{Listener: inner}, share.NewRoom[netip.Addr](most),
			netip.MustParseAddrPort(api.Addr().String()))
	}()
	from := func(address string) (*net.TCPConn, error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: time.Minute}
		c, err := d.DialContext(t.Context(), "tcp", inner.Addr().String())
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, err = io.ReadFull(c, make([]byte, len("hello")))
		return c.(*net.TCPConn), err
	}
	pipes := func() (n int) {
		all, err := filepath.Glob("/proc/self/fd/*")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range all {
			if to, _ := os.Readlink(name); strings.HasPrefix(to, "pipe:") {
				n++
			}
		}
		return n
	}
	before := pipes()
	for i := range 2 * most {
		if _, err := from("127.0.0.2"); i < most/2 && err != nil || i >= most/2 && !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("connection %d of a pod: %v", i, err)
		}
	}
	c, err := from("127.0.0.3")
	if err != nil {
		t.Fatalf("another pod: %v", err)
	}
	if _, err := c.Write([]byte("text")); err != nil {
		t.Fatal(err)
	}
	if got := make([]byte, 4); second(io.ReadFull(c, got)) != nil || string(got) != "text" {
		t.Errorf("it gets %q", got)
	}
	if got := pipes() - before; got > 0 {
		t.Errorf("%d ends of pipes are open", got)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(c); err != nil || len(rest) > 0 {
		t.Errorf("after the end of what it says: %q, %v", rest, err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
	if _, err := inner.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener, for which the next session waits: %v", err)
	}
}

func second(_ int, err error) error { return err }
