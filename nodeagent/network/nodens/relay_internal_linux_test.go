package nodens

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

// A client whose connections lead nowhere, because a rule drops them, say, does not keep others out: further ones of
// its are reset.
func TestClientsThatAreDropped(t *testing.T) {
	l, target := listen(t), listen(t)
	go func() {
		for {
			conn, err := target.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "hello") // Who is not told fails below.
			conn.Close()
		}
	}()
	dial := func(ctx context.Context, from net.Conn) (net.Conn, error) {
		if share.Address(from.RemoteAddr()).String() == "127.0.0.2" {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return net.Dial("tcp", target.Addr().String())
	}
	const room = 8
	r := newRelay(t.Context(), l, passage{share.NewRoom[netip.Addr](2 * room * descriptorsOfConn), room, nil},
		share.Address, dial)
	defer r.close()
	from := func(address string) (net.Conn, error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
		conn, err := d.Dial("tcp", l.Addr().String())
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { conn.Close() })
		return conn, conn.SetDeadline(time.Now().Add(time.Minute))
	}
	reset := make(chan error, room)
	for range room {
		conn, err := from("127.0.0.2")
		if errors.Is(err, unix.ECONNRESET) {
			reset <- err
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := conn.Read(make([]byte, 1))
			reset <- err
		}()
	}
	for range room - room/4 {
		if err := <-reset; !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("a further connection: %v, want a reset", err)
		}
	}
	for range room {
		conn, err := from("127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(conn); err != nil || string(text) != "hello" {
			t.Errorf("another client: %q, %v", text, err)
		}
		conn.Close() // So that there is room for the next one.
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}
