package nodens

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/network/nodens/internal/wire"
)

// kernelTime is how long the kernel may take to answer. It answers before the request has returned; this is for what
// it does not answer at all.
const kernelTime = 10 * time.Second

// Netlink returns a socket of the netlink family protocol, such as unix.NETLINK_NETFILTER for conntrack, that was
// opened in the node namespace.
func (n *Namespace) Netlink(ctx context.Context, protocol int) (*os.File, error) {
	return n.helper.file(ctx, &wire.Request{Socket: &wire.Socket{Domain: unix.AF_NETLINK, Type: unix.SOCK_RAW,
		Protocol: protocol}})
}

// NFTables returns a connection to the nftables of the node namespace. Whoever changes it there keeps to a table of
// their own.
func (n *Namespace) NFTables() (*nftables.Conn, error) {
	// Package nftables opens its sockets itself, in a namespace that this process could enter, which it cannot without
	// root. The one other way of giving it a connection is what it has for tests: a function for what is sent and what
	// is received. This one sends over a socket that the helper has opened.
	f, err := n.Netlink(n.work, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("nftables of the node namespace: %w", err)
	}
	p := &pipe{socket: f}
	return nftables.New(nftables.WithTestDial(p.exchange))
}

// pipe carries messages of netlink over a socket. It is used by one operation at a time, as a connection of nftables
// is.
type pipe struct{ socket *os.File }

// exchange sends messages, if there are any, and otherwise receives one datagram of the kernel's.
func (p *pipe) exchange(requests []netlink.Message) ([]netlink.Message, error) {
	raw, err := p.socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	if len(requests) > 0 {
		return nil, send(raw, requests)
	}
	if err := p.socket.SetReadDeadline(time.Now().Add(kernelTime)); err != nil {
		return nil, err
	}
	return receive(raw)
}

type rawConn interface {
	Read(func(fd uintptr) bool) error
	Write(func(fd uintptr) bool) error
}

func send(raw rawConn, requests []netlink.Message) error {
	var buf []byte
	for _, m := range requests {
		b, err := m.MarshalBinary()
		if err != nil {
			return err
		}
		buf = append(buf, b...)
	}
	var err error
	werr := raw.Write(func(fd uintptr) bool {
		drain(int(fd))
		// A batch goes to the kernel as one datagram, which its buffer must hold. Beyond what everybody may have needs
		// rights in the machine's own namespace; without them, the kernel says that the message is too long.
		size := 2*len(buf) + 64<<10
		if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, size) != nil {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, size)
		}
		if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size) != nil {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, size)
		}
		// Without an address, the kernel asks what this process may do, and not what the helper might.
		_, err = unix.Write(int(fd), buf)
		return !errors.Is(err, unix.EAGAIN)
	})
	if werr != nil {
		return werr
	}
	if err != nil {
		return os.NewSyscallError("write", err)
	}
	return nil
}

// drain throws away what is left of an operation before, which was given up.
func drain(fd int) {
	var buf [1]byte
	for {
		if _, _, err := unix.Recvfrom(fd, buf[:], unix.MSG_DONTWAIT|unix.MSG_TRUNC); err != nil {
			return
		}
	}
}

// receive reads one datagram.
func receive(raw rawConn) ([]netlink.Message, error) {
	var buf []byte
	var err error
	rerr := raw.Read(func(fd uintptr) bool {
		var size int
		size, _, err = unix.Recvfrom(int(fd), nil, unix.MSG_PEEK|unix.MSG_TRUNC|unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			return false
		}
		if err == nil {
			buf = make([]byte, size)
			size, _, err = unix.Recvfrom(int(fd), buf, unix.MSG_DONTWAIT)
			buf = buf[:max(size, 0)]
		}
		return true
	})
	if rerr != nil {
		return nil, rerr
	}
	if err != nil {
		return nil, os.NewSyscallError("recvmsg", err)
	}
	return parse(buf)
}

// parse takes a datagram apart. What the kernel answers carries the number of the socket; the connection, which has
// not opened it, expects its own.
func parse(buf []byte) (messages []netlink.Message, err error) {
	for len(buf) >= unix.SizeofNlMsghdr {
		size := int(binary.NativeEndian.Uint32(buf))
		if size < unix.SizeofNlMsghdr || size > len(buf) {
			return nil, fmt.Errorf("the kernel's answer has a message of %d bytes in %d", size, len(buf))
		}
		aligned := min((size+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1), len(buf))
		one := make([]byte, (size+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1))
		copy(one, buf[:aligned])
		var m netlink.Message
		binary.NativeEndian.PutUint32(one, uint32(len(one)))
		if err := m.UnmarshalBinary(one); err != nil {
			return nil, err
		}
		m.Header.Length, m.Data = uint32(size), m.Data[:size-unix.SizeofNlMsghdr]
		m.Header.PID = nltest.PID
		messages = append(messages, m)
		buf = buf[aligned:]
	}
	return messages, nil
}

// Netfilter returns a connection to the netfilter of the node namespace, such as its connection tracking.
func (n *Namespace) Netfilter() (*netlink.Conn, error) {
	f, err := n.Netlink(n.work, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("netfilter of the node namespace: %w", err)
	}
	return netlink.NewConn(&connection{pipe{socket: f}}, nltest.PID), nil
}

// connection is a netlink.Socket over a pipe.
type connection struct{ pipe }

func (c *connection) Close() error                             { return c.socket.Close() }
func (c *connection) SyscallConn() (syscall.RawConn, error)    { return c.socket.SyscallConn() }
func (c *connection) Send(m netlink.Message) error             { return c.SendMessages([]netlink.Message{m}) }
func (c *connection) Receive() ([]netlink.Message, error)      { return c.exchange(nil) }
func (c *connection) SendMessages(all []netlink.Message) error { _, err := c.exchange(all); return err }
