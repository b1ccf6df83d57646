package nodens

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/network/nodens/internal/wire"
)

// Listen listens for TCP in the node namespace, on an address that the namespace has, or on all with an unspecified
// one.
func (n *Namespace) Listen(ctx context.Context, address netip.AddrPort) (net.Listener, error) {
	return n.listen(ctx, address, false)
}

func (n *Namespace) listen(ctx context.Context, address netip.AddrPort, transparent bool) (net.Listener, error) {
	f, err := n.helper.file(ctx, &wire.Request{Socket: &wire.Socket{Domain: domain(address), Type: unix.SOCK_STREAM,
		Bind: address, Listen: true, Transparent: transparent}})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return net.FileListener(f)
}

// ListenPacket does so for UDP.
func (n *Namespace) ListenPacket(ctx context.Context, address netip.AddrPort) (*net.UDPConn, error) {
	return n.listenPacket(ctx, wire.Socket{Bind: address})
}

func (n *Namespace) listenPacket(ctx context.Context, socket wire.Socket) (*net.UDPConn, error) {
	socket.Domain, socket.Type = domain(socket.Bind), unix.SOCK_DGRAM
	f, err := n.helper.file(ctx, &wire.Request{Socket: &socket})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	conn, err := net.FilePacketConn(f)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UDPConn), nil
}

// Dial connects to an address of a pod or Service out of the node namespace; network is "tcp" or "udp". A valid
// source is the address that the other side sees, which need not be one of the node's; with port 0, the kernel
// chooses one.
func (n *Namespace) Dial(ctx context.Context, network string, source, address netip.AddrPort) (net.Conn, error) {
	want := wire.Socket{Domain: domain(address), Type: unix.SOCK_STREAM, Bind: source, Transparent: source.IsValid(),
		Shared: source.IsValid()}
	switch network {
	case "tcp":
	case "udp":
		want.Type = unix.SOCK_DGRAM
	default:
		return nil, fmt.Errorf(`the network is %q, not "tcp" or "udp"`, network)
	}
	if source.IsValid() && source.Addr().Is4() != address.Addr().Is4() {
		return nil, fmt.Errorf("%s cannot be reached from %s, which is of another family", address, source)
	}
	return n.connect(ctx, network, address, &want)
}

// DialInside does so out of a pod's namespace, to any address that processes in it can connect to.
func (n *Namespace) DialInside(
	ctx context.Context, netns *os.File, network string, address netip.AddrPort,
) (net.Conn, error) {
	want := wire.Socket{Domain: domain(address), Type: unix.SOCK_STREAM, Inside: true}
	if network == "udp" {
		want.Type = unix.SOCK_DGRAM
	}
	return n.connect(ctx, network, address, &want, netns)
}

func (n *Namespace) connect(
	ctx context.Context, network string, address netip.AddrPort, want *wire.Socket, files ...*os.File,
) (net.Conn, error) {
	f, err := n.helper.file(ctx, &wire.Request{Socket: want}, files...)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := connectTo(ctx, f, address); err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: net.TCPAddrFromAddrPort(address), Err: err}
	}
	return net.FileConn(f)
}

// connectTo waits for the socket to be connected.
func connectTo(ctx context.Context, f *os.File, to netip.AddrPort) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	begun := false
	var result error
	err = raw.Write(func(fd uintptr) bool {
		if begun {
			code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
			switch {
			case err != nil:
				result = err
			case code != 0:
				result = unix.Errno(code)
			default:
				// Writable without an error is not yet connected: a wake-up can come too early.
				if _, err := unix.Getpeername(int(fd)); errors.Is(err, unix.ENOTCONN) {
					return false
				}
			}
			return true
		}
		begun = true
		result = unix.Connect(int(fd), sockaddr(to))
		if errors.Is(result, unix.EINPROGRESS) {
			result = nil
			return false
		}
		return true
	})
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	if result != nil {
		return os.NewSyscallError("connect", result)
	}
	return nil
}

func domain(a netip.AddrPort) int {
	if a.Addr().Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}
