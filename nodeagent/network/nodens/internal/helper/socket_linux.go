package helper

import (
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/network/nodens/internal/wire"
)

// backlog is how many connections may wait to be accepted; the kernel takes less if its somaxconn is less.
const backlog = 4096

// socketIn opens a socket in the node namespace, or in the one that comes with the request.
func socketIn(want *wire.Socket, files []*os.File) (f *os.File, err error) {
	if !want.Inside {
		return socket(want)
	}
	if len(files) != 1 {
		return nil, fmt.Errorf("a socket of a pod is opened with one namespace, not %d", len(files))
	}
	err = aside(func() error {
		if err := enter(files[0]); err != nil {
			return err
		}
		f, err = socket(want)
		return err
	})
	return f, err
}

// socket opens a socket in the namespace of this thread.
func socket(want *wire.Socket) (f *os.File, err error) {
	fd, err := unix.Socket(want.Domain, want.Type|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, want.Protocol)
	if err != nil {
		return nil, fmt.Errorf("a socket: %w", err)
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	six := want.Domain == unix.AF_INET6
	set := func(level, option int) {
		if err == nil {
			err = unix.SetsockoptInt(fd, level, option, 1)
		}
	}
	if six && want.Bind.IsValid() {
		set(unix.IPPROTO_IPV6, unix.IPV6_V6ONLY)
	}
	if want.Shared || want.Listen {
		set(unix.SOL_SOCKET, unix.SO_REUSEADDR)
	}
	if want.Transparent && six {
		set(unix.SOL_IPV6, unix.IPV6_TRANSPARENT)
	} else if want.Transparent {
		set(unix.SOL_IP, unix.IP_TRANSPARENT)
	}
	if want.Original && six {
		set(unix.SOL_IPV6, unix.IPV6_RECVORIGDSTADDR)
	} else if want.Original {
		set(unix.SOL_IP, unix.IP_RECVORIGDSTADDR)
	}
	if err != nil {
		return nil, fmt.Errorf("the options of a socket: %w", err)
	}
	if want.Bind.IsValid() {
		if want.Bind.Port() == 0 && want.Type == unix.SOCK_STREAM && !want.Listen {
			// The port is chosen when the socket is connected, so that one can serve many targets.
			_ = unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
		}
		if err = unix.Bind(fd, sockaddr(want.Bind)); err != nil {
			return nil, fmt.Errorf("%s cannot be used: %w", want.Bind, err)
		}
	}
	if want.Listen {
		if err = unix.Listen(fd, backlog); err != nil {
			return nil, fmt.Errorf("listening on %s: %w", want.Bind, err)
		}
	}
	return os.NewFile(uintptr(fd), "socket"), nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}
