package share_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monoplane.dev/internal/share"
)

// Whoever takes all that he can leaves as much to somebody new.
func TestRoomIsShared(t *testing.T) {
	for _, most := range []int{-1, 0, 1, 2, 3, 8, 100} {
		r := share.NewRoom[int](most)
		take := func(owner int) (n int) {
			for r.Take(owner, 1) {
				n++
			}
			return n
		}
		first := take(1)
		if want := (max(1, most) + 1) / 2; first != want {
			t.Errorf("of %d one takes %d, want %d", most, first, want)
		}
		if second := take(2); most >= 8 && (second < most/4 || !r.Take(3, 1)) {
			t.Errorf("of %d the second takes %d, and there is something for a third: %t", most, second, second < most/4)
		}
		for range first {
			r.Give(1, 1)
		}
		if most > 2 && !r.Take(4, 1) {
			t.Errorf("of %d nothing was given back", most)
		}
	}
	r := share.NewRoom[string](2)
	if !r.Empty() || !r.Take("a", 2) || r.Empty() {
		t.Error("it is not known whether somebody has anything")
	}
	r.Give("a", 2)
	if !r.Empty() {
		t.Error("it is not empty")
	}
}

func TestClients(t *testing.T) {
	for address, want := range map[string][2]string{
		"10.0.0.1:80":            {"10.0.0.1", "10.0.0.1"},
		"[::ffff:10.0.0.1]:80":   {"10.0.0.1", "10.0.0.1"},
		"[fe80::1%lo]:80":        {"fe80::1", "fe80::"},
		"[2001:db8:1:2:3::4]:80": {"2001:db8:1:2:3::4", "2001:db8:1:2::"},
	} {
		at := netip.MustParseAddrPort(address)
		for _, a := range []net.Addr{net.TCPAddrFromAddrPort(at), net.UDPAddrFromAddrPort(at)} {
			if got := [2]string{share.Address(a).String(), share.Network(a).String()}; got != want {
				t.Errorf("%s %s is of %s, want %s", a.Network(), address, got, want)
			}
		}
	}
	if got := share.Network(&net.UnixAddr{}); got.IsValid() {
		t.Errorf("a socket without address is of %s", got)
	}
}

// failing is a listener that fails a few times before each connection.
type failing struct {
	net.Listener
	errs []error
	left int
}

func (f *failing) Accept() (net.Conn, error) {
	if f.left < len(f.errs) {
		f.left++
		return nil, &net.OpError{Op: "accept", Err: f.errs[f.left-1]}
	}
	f.left = 0
	return f.Listener.Accept()
}

// No lack and no client ends a listener. One client cannot keep another out, and who has enough is reset at once.
func TestListen(t *testing.T) {
	inner, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const most = 4
	l := share.Listen(&failing{Listener: inner, errs: []error{unix.EMFILE, unix.ENFILE, unix.ECONNABORTED, unix.EPROTO}},
		share.NewRoom[netip.Addr](most), share.Address)
	served, ended := make(chan net.Conn, most), make(chan error, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				ended <- err
				return
			}
			_, _ = io.WriteString(c, "hello")
			served <- c
		}
	}()
	from := func(address string) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
		c, err := d.DialContext(ctx, "tcp", inner.Addr().String())
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, err = io.ReadFull(c, make([]byte, 5))
		return err
	}
	for i := range 2 * most {
		if err := from("127.0.0.2"); i < most/2 && err != nil || i >= most/2 && !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("connection %d: %v", i, err)
		}
	}
	if err := from("127.0.0.3"); err != nil {
		t.Errorf("another client: %v", err)
	}
	for range most/2 + 1 {
		c := <-served
		_, _ = c.Close(), c.Close() // which gives back one place only
	}
	for i := range most {
		if err := from("127.0.0.2"); i < most/2 && err != nil || i >= most/2 && !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("connection %d after all have ended: %v", i, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("it ends with %v", err)
	}
}

// A listener that cannot accept at all ends when it is closed.
func TestListenEnds(t *testing.T) {
	inner, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := share.Listen(broken{inner}, share.NewRoom[netip.Addr](1), share.Network)
	ended := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		ended <- err
	}()
	_ = l.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("it ends with %v", err)
	}
}

// broken never accepts anybody.
type broken struct{ net.Listener }

func (broken) Accept() (net.Conn, error) { return nil, unix.EMFILE }
