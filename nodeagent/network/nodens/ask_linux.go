package nodens

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/network/nodens/internal/wire"
)

// questions are what the kernel asks about connections of pods to elsewhere, by a queue of packets (NFQUEUE): the
// packet that begins one is held until this process has a connection to where it goes. So a connection that is refused
// there is refused to the pod as well, and one that nobody answers is not answered. Where a question cannot be asked,
// the connection is accepted at once, and made afterwards.
type questions struct {
	socket  *os.File
	number  uint16
	errors  map[bool]*os.File // Sockets for messages of ICMP, by whether they are of IPv6.
	dial    func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
	passage passage

	ctx  context.Context
	stop context.CancelFunc
	done sync.WaitGroup

	mu    sync.Mutex
	all   map[flow]*question
	ended bool
}

// question is one that has been asked. The connection is nil while it is being made.
type question struct {
	conn   net.Conn
	forget *time.Timer
}

// takeTime is how long a connection waits for that of the pod, which the kernel makes as soon as it may.
const takeTime = 5 * time.Second

// The numbers of linux/netfilter/nfnetlink_queue.h.
const (
	queuePacket  = unix.NFNL_SUBSYS_QUEUE << 8
	queueVerdict = unix.NFNL_SUBSYS_QUEUE<<8 | 1
	queueConfig  = unix.NFNL_SUBSYS_QUEUE<<8 | 2

	packetHeader, packetPayload                                      = 1, 10
	verdictHeader, verdictMark                                       = 2, 3
	configCommand, configParams, configMost, configMask, configFlags = 1, 2, 3, 4, 5

	commandBind = 1
	copyPacket  = 2
	failOpen    = 1
)

// verdict is what becomes of a packet: NF_DROP, NF_ACCEPT.
type verdict uint32

const (
	drop   verdict = 0
	accept verdict = 1
)

// The questions that may wait for this process, the bytes of a packet that are needed, the longest header of IPv4 and
// the ports of TCP, and the buffer of the socket.
const (
	mostQuestions   = 1024
	questionBytes   = 64
	questionsBuffer = 2 << 20
)

// askFirst has the process asked. dial makes the connections.
func (n *Namespace) askFirst(
	ctx context.Context, work context.Context, dial func(context.Context, netip.AddrPort) (net.Conn, error),
) (*questions, error) {
	f, err := n.Netlink(ctx, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	// A server before this one that still lives, though it does nothing any more, has its queue: a number at random,
	// with which the rules come to be of this one.
	q := &questions{socket: f, number: uint16(1 + rand.IntN(1<<16-1)), dial: dial, passage: n.passage,
		all: map[flow]*question{}}
	if q.errors, err = n.icmp(ctx); err == nil {
		err = q.bind()
	}
	if err != nil {
		q.closeSockets()
		return nil, fmt.Errorf("a queue of packets: %w", err)
	}
	q.ctx, q.stop = context.WithCancel(work)
	context.AfterFunc(q.ctx, q.closeSockets)
	q.done.Go(func() {
		if err := q.serve(); err != nil && q.ctx.Err() == nil {
			n.cfg.Log.Warn("connections of pods to elsewhere are accepted before they are made", "error", err)
		}
	})
	return q, nil
}

// bind makes the queue this socket's. The kernel lets pass what is too much for it.
func (q *questions) bind() error {
	be32 := binary.BigEndian.AppendUint32
	body, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: configCommand, Data: []byte{commandBind, 0, 0, 0}},
		{Type: configParams, Data: append(be32(nil, questionBytes), copyPacket)},
		{Type: configMost, Data: be32(nil, mostQuestions)},
		{Type: configMask, Data: be32(nil, failOpen)},
		{Type: configFlags, Data: be32(nil, failOpen)},
	})
	if err != nil {
		return err
	}
	conn := netlink.NewConn(&connection{pipe{socket: q.socket}}, nltest.PID)
	_, err = conn.Execute(netlink.Message{
		Header: netlink.Header{Type: queueConfig, Flags: netlink.Request | netlink.Acknowledge},
		Data:   append(q.header(), body...),
	})
	if err != nil {
		return err
	}
	raw, err := q.socket.SyscallConn()
	if err != nil {
		return err
	}
	if err := raw.Control(func(fd uintptr) {
		if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, questionsBuffer) != nil {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, questionsBuffer)
		}
	}); err != nil {
		return err
	}
	return q.socket.SetReadDeadline(time.Time{})
}

func (q *questions) closeSockets() {
	q.socket.Close()
	for _, f := range q.errors {
		f.Close()
	}
}

// header is that of messages about the queue: struct nfgenmsg.
func (q *questions) header() []byte {
	return binary.BigEndian.AppendUint16([]byte{unix.AF_UNSPEC, unix.NFNETLINK_V0}, q.number)
}

func (q *questions) close() {
	if q == nil {
		return
	}
	q.stop()
	q.mu.Lock()
	q.ended = true
	for f := range q.all {
		q.drop(f)
	}
	q.mu.Unlock()
	q.done.Wait()
}

func (q *questions) serve() error {
	defer q.closeSockets() // Without it, the kernel lets pass what is held, and what comes.
	raw, err := q.socket.SyscallConn()
	if err != nil {
		return err
	}
	for {
		messages, err := receive(raw)
		if errors.Is(err, unix.ENOBUFS) {
			continue // What was too much has been let pass.
		}
		if err != nil {
			return err
		}
		for _, m := range messages {
			if m.Header.Type != queuePacket {
				continue // A verdict that came too late.
			}
			if id, packet, ok := asked(m.Data); ok {
				q.ask(id, packet)
			}
		}
	}
}

// ask begins to answer a question.
func (q *questions) ask(id uint32, packet []byte) {
	f, ok := flowOf(packet)
	if !ok {
		q.answer(id, accept, 0)
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if earlier := q.all[f]; earlier != nil {
		// The pod asks again, since it has not been answered. It is once the packet that is held goes on.
		now := drop
		if earlier.conn != nil {
			now = accept
		}
		q.answer(id, now, 0)
		return
	}
	if q.ended || !q.passage.Take(f.client.Addr(), 1) {
		q.answer(id, drop, 0)
		return
	}
	q.all[f] = &question{}
	q.done.Go(func() { q.connect(id, f, packet) })
}

// connect answers a question.
func (q *questions) connect(id uint32, f flow, packet []byte) {
	ctx, cancel := context.WithTimeout(q.ctx, dialTime)
	conn, err := q.dial(ctx, f.target)
	cancel()
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil || q.ended {
		if conn != nil {
			conn.Close()
		}
		q.drop(f)
		q.refuse(id, f, packet, err)
		return
	}
	asked := q.all[f]
	asked.conn = conn
	asked.forget = time.AfterFunc(takeTime, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.all[f] == asked {
			q.drop(f)
		}
	})
	q.answer(id, accept, 0)
}

// refuse tells the pod why a connection could not be made. What passes is not told: the pod's kernel tries again.
func (q *questions) refuse(id uint32, f flow, packet []byte, why error) {
	if errors.Is(why, unix.ECONNREFUSED) {
		q.answer(id, accept, wire.Refused)
		return
	}
	q.answer(id, drop, 0)
	var timeout net.Error
	if why == nil || errors.Is(why, context.Canceled) || errors.As(why, &timeout) && timeout.Timeout() {
		return
	}
	for _, passing := range []unix.Errno{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.EADDRNOTAVAIL} {
		if errors.Is(why, passing) {
			return
		}
	}
	six := f.client.Addr().Is6()
	if m, err := unreachable(six, packet); err == nil {
		_ = sendTo(q.errors[six], f.client.Addr(), m)
	}
}

// take returns the connection that was made for the pod's; nil if there is none.
func (q *questions) take(f flow) net.Conn {
	if q == nil {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	asked := q.all[f]
	if asked == nil || asked.conn == nil {
		return nil
	}
	conn := asked.conn
	asked.conn = nil
	q.drop(f)
	return conn
}

// drop forgets a question. Callers hold the lock.
func (q *questions) drop(f flow) {
	asked := q.all[f]
	if asked == nil {
		return
	}
	if asked.forget != nil {
		asked.forget.Stop()
	}
	if asked.conn != nil {
		asked.conn.Close()
	}
	delete(q.all, f)
	q.passage.Give(f.client.Addr(), 1)
}

// answer lets go of a packet. A mark of 0 leaves the packet's own.
func (q *questions) answer(id uint32, v verdict, mark uint32) {
	body := q.header()
	body = binary.NativeEndian.AppendUint16(body, 12)
	body = binary.NativeEndian.AppendUint16(body, verdictHeader)
	body = binary.BigEndian.AppendUint32(body, uint32(v))
	body = binary.BigEndian.AppendUint32(body, id)
	if mark != 0 {
		body = binary.NativeEndian.AppendUint16(body, 8)
		body = binary.NativeEndian.AppendUint16(body, verdictMark)
		body = binary.BigEndian.AppendUint32(body, mark)
	}
	buf := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	buf = binary.NativeEndian.AppendUint16(buf, queueVerdict)
	buf = binary.NativeEndian.AppendUint16(buf, unix.NLM_F_REQUEST)
	buf = append(append(buf, make([]byte, 8)...), body...) // Without a number, and from nobody.
	// A question that the kernel has given up meanwhile needs no answer.
	_, _ = q.socket.Write(buf)
}

// icmp opens sockets for messages of ICMP. As the rules can answer only for the node's own addresses, and what is held
// goes elsewhere, this process says itself that there is no way.
func (n *Namespace) icmp(ctx context.Context) (map[bool]*os.File, error) {
	all := map[bool]*os.File{}
	for six, s := range map[bool]wire.Socket{
		false: {Domain: unix.AF_INET, Protocol: unix.IPPROTO_ICMP},
		true:  {Domain: unix.AF_INET6, Protocol: unix.IPPROTO_ICMPV6},
	} {
		if six && !n.status.IPv6 {
			continue
		}
		s.Type = unix.SOCK_RAW
		f, err := n.helper.file(ctx, &wire.Request{Socket: &s})
		if err != nil {
			return all, err
		}
		all[six] = f
	}
	return all, nil
}

// unreachable is the message that there is no way for a packet.
func unreachable(six bool, packet []byte) ([]byte, error) {
	m := icmp.Message{Type: ipv4.ICMPTypeDestinationUnreachable, Code: 1, Body: &icmp.DstUnreach{Data: packet}}
	if six {
		m.Type, m.Code = ipv6.ICMPTypeDestinationUnreachable, 3
	}
	return m.Marshal(nil)
}

func sendTo(f *os.File, to netip.Addr, message []byte) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if cerr := raw.Control(func(fd uintptr) {
		err = unix.Sendto(int(fd), message, unix.MSG_DONTWAIT, sockaddr(netip.AddrPortFrom(to, 0)))
	}); cerr != nil {
		return cerr
	}
	return err
}

// asked reads a message of the queue.
func asked(data []byte) (id uint32, packet []byte, ok bool) {
	if len(data) < 4 {
		return 0, nil, false
	}
	d, err := netlink.NewAttributeDecoder(data[4:])
	if err != nil {
		return 0, nil, false
	}
	for d.Next() {
		switch b := d.Bytes(); d.Type() {
		case packetHeader:
			if len(b) >= 4 {
				id, ok = binary.BigEndian.Uint32(b), true
			}
		case packetPayload:
			packet = b
		}
	}
	return id, packet, ok && d.Err() == nil
}

// flowOf reads who speaks to whom from the beginning of a packet of TCP.
func flowOf(packet []byte) (f flow, ok bool) {
	var client, target netip.Addr
	switch {
	case len(packet) >= 20 && packet[0]>>4 == 4:
		client, target = netip.AddrFrom4([4]byte(packet[12:16])), netip.AddrFrom4([4]byte(packet[16:20]))
		packet = packet[min(int(packet[0]&15)*4, len(packet)):]
	case len(packet) >= 40 && packet[0]>>4 == 6 && packet[6] == unix.IPPROTO_TCP:
		client, target = netip.AddrFrom16([16]byte(packet[8:24])), netip.AddrFrom16([16]byte(packet[24:40]))
		packet = packet[40:]
	}
	if len(packet) < 4 || !client.IsValid() {
		return flow{}, false
	}
	return flow{
		client: netip.AddrPortFrom(client, binary.BigEndian.Uint16(packet)),
		target: netip.AddrPortFrom(target, binary.BigEndian.Uint16(packet[2:])),
	}, true
}
