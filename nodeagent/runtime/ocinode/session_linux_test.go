package ocinode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// taken is a node namespace in which somebody has a port.
type taken struct{ port uint16 }

func (n taken) Listen(_ context.Context, address netip.AddrPort) (net.Listener, error) {
	if address.Port() == n.port {
		return nil, fmt.Errorf("%s cannot be used: %w", address, unix.EADDRINUSE)
	}
	return &broken{address: address}, nil
}

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

// broken accepts nobody.
type broken struct {
	address netip.AddrPort
	closed  bool
}

var errBroken = errors.New("broken")

func (b *broken) Addr() net.Addr { return net.TCPAddrFromAddrPort(b.address) }

func (*broken) Accept() (net.Conn, error) { return nil, errBroken }

func (b *broken) Close() error {
	b.closed = true
	return nil
}

// A listener that accepts nobody any more is closed, so that the next session can listen.
func TestForwardCloses(t *testing.T) {
	l := new(broken)
	if err := forward(t.Context(), l, netip.AddrPort{}); !errors.Is(err, errBroken) || !l.closed {
		t.Errorf("it ends with %v, and the listener is closed: %t", err, l.closed)
	}
}
