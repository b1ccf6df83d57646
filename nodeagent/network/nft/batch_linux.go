package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// MostBytes is how long a transaction may be. The kernel looks for what a transaction has made among all that it has
	// made, so that a much longer one takes longer than two. Who is not root of the machine has less where twice
	// net.core.wmem_max is less, which older kernels begin with 208 KiB of.
	MostBytes = 4 << 20
	// sendOverhead is what the kernel subtracts from a socket's buffer.
	sendOverhead = 32
	// genmsgBytes is the length of what each message begins with behind its header, struct nfgenmsg.
	genmsgBytes = 4
	// frameBytes is the length of each of the two messages around those of a transaction.
	frameBytes = unix.SizeofNlMsghdr + genmsgBytes
	// mostRefusals bounds how many refused messages an error tells about: the first is followed by those of what needs
	// what it was to make.
	mostRefusals = 3
)

// ErrUnclear says that the kernel did not answer, so that a transaction was carried out or was not.
var ErrUnclear = errors.New("the kernel does not say whether it has changed the nftables ruleset")

// Batch makes changes in one transaction if they fit, and else in as few as they can be.
//
// The kernel is asked to acknowledge the last message of a transaction only, and to repeat none. What it says about
// others is that they are refused. Were all acknowledged, the answers to a few hundred would be more than the socket
// can hold of who is not root of the machine.
type Batch struct {
	// Conn is what changes are put into. They are sent by methods of Batch.
	Conn *nftables.Conn

	socket *netlink.Conn
	raw    syscall.RawConn
	// limit is how long a transaction may be.
	limit int

	// taken are the messages since the last call of End, cuts the places where they may be divided.
	taken []byte
	cuts  []int
	// pending is the next transaction up to now: a message that begins it, and its changes.
	pending []byte
	// transactions counts those that were carried out.
	transactions uint32
}

// NewBatch returns a Batch whose transactions are mostBytes long at most. It opens a netfilter socket with dial.
func NewBatch(dial func() (*netlink.Conn, error), mostBytes int) (*Batch, error) {
	b := &Batch{pending: begin(nil)}
	var err error
	// The library sends what it has been told with a flush, and wants each message acknowledged. It has one way of
	// getting at the messages instead: a function in place of the kernel, which answers nothing here.
	b.Conn, err = nftables.New(nftables.AsLasting(), nftables.WithTestDial(func(m []netlink.Message) (
		[]netlink.Message, error,
	) {
		if err := b.take(m); err != nil {
			return nil, err
		}
		return nil, io.EOF
	}))
	if err != nil {
		return nil, err
	}
	if b.socket, err = dial(); err != nil {
		return nil, fmt.Errorf("opening a netfilter socket: %w", err)
	}
	if b.raw, err = b.socket.SyscallConn(); err == nil {
		err = b.control(func(fd int) (err error) {
			b.limit, err = prepare(fd, mostBytes)
			return err
		})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("preparing a netfilter socket: %w", err), b.Close())
	}
	return b, nil
}

// Close closes the socket. What is pending is not carried out.
func (b *Batch) Close() error { return b.socket.Close() }

// prepare gives a socket a buffer for transactions of a length, or of as much as the kernel allows, and returns how
// long they may be.
func prepare(fd, bytes int) (limit int, err error) {
	half := (bytes + sendOverhead) / 2 // the kernel doubles it
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, half) != nil {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, half); err != nil {
			return 0, err
		}
	}
	// Without what was refused in what refuses it, more refusals fit.
	if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1); err != nil {
		return 0, err
	}
	size, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	return size - sendOverhead, err
}

// take keeps messages that the library sends, without those around them that make a transaction.
func (b *Batch) take(messages []netlink.Message) error {
	for _, m := range messages {
		if m.Header.Type == unix.NFNL_MSG_BATCH_BEGIN || m.Header.Type == unix.NFNL_MSG_BATCH_END {
			continue
		}
		m.Header.Flags &^= netlink.Acknowledge | netlink.Echo
		data, err := m.MarshalBinary()
		if err != nil {
			return err
		}
		b.taken = append(b.taken, data...)
	}
	return nil
}

// OnlyOf has the kernel refuse the transaction that begins now, with ERESTART, where its ruleset has another
// generation by then: somebody has changed something since.
func (b *Batch) OnlyOf(generation uint32) {
	const bytes = unix.SizeofNlAttr + 4
	b.pending = begin(b.pending)
	binary.NativeEndian.PutUint32(b.pending, frameBytes+bytes)
	b.pending = binary.NativeEndian.AppendUint16(b.pending, bytes)
	b.pending = binary.NativeEndian.AppendUint16(b.pending, batchGeneration)
	b.pending = binary.BigEndian.AppendUint32(b.pending, generation)
}

// Cut says that what has been put into Conn, and what will be, may be in two transactions if there is no other way:
// if what is put there until the next call of End is too much for one.
func (b *Batch) Cut() error {
	if err := b.Conn.Flush(); err != nil {
		return err
	}
	b.cuts = append(b.cuts, len(b.taken))
	return nil
}

// End says that what has been put into Conn since the last call belongs together. What was put there before is carried
// out now if both do not fit into one transaction.
func (b *Batch) End() error {
	if err := b.Cut(); err != nil {
		return err
	}
	if err := b.makeRoom(len(b.taken)); err != nil {
		return err
	}
	from := 0
	for _, to := range b.cuts {
		if err := b.makeRoom(to - from); err != nil {
			return err
		}
		b.pending = append(b.pending, b.taken[from:to]...)
		from = to
	}
	b.taken, b.cuts = b.taken[:0], b.cuts[:0]
	return nil
}

// makeRoom carries out what is pending if so many further bytes do not fit.
func (b *Batch) makeRoom(bytes int) error {
	if len(b.pending)+bytes+frameBytes > b.limit {
		return b.carryOut()
	}
	return nil
}

// Commit carries out what is pending, and returns how many transactions there have been. After an error of this or
// another method the Batch is of no use: it is not known what has been carried out.
func (b *Batch) Commit() (transactions uint32, err error) {
	err = b.carryOut()
	return b.transactions, err
}

// carryOut makes one transaction of what is pending, if anything is.
func (b *Batch) carryOut() error {
	if len(b.pending) == int(binary.NativeEndian.Uint32(b.pending)) { // Of its first message.
		return nil
	}
	t := newTransaction(appendFrame(b.pending, unix.NFNL_MSG_BATCH_END))
	var answers []byte
	overrun := false
	err := b.control(func(fd int) error {
		// Without an address, the kernel asks what this process may do, and not who has opened the socket.
		if _, err := unix.Write(fd, t.data); err != nil {
			return fmt.Errorf("sending %d bytes to nftables: %w", len(t.data), err)
		}
		// The kernel has done its work and answered by the time that it has taken what is sent.
		var err error
		answers, overrun, err = receiveAll(fd)
		return err
	})
	if err != nil {
		return err
	}
	if err := t.outcome(answers, overrun); err != nil {
		return err
	}
	b.transactions++
	b.pending = begin(b.pending)
	return nil
}

func (b *Batch) control(f func(fd int) error) error {
	var err error
	if cerr := b.raw.Control(func(fd uintptr) { err = f(int(fd)) }); cerr != nil {
		return cerr
	}
	return err
}

// receiveAll reads what a socket has. overrun says that it could not hold all there was.
func receiveAll(fd int) (answers []byte, overrun bool, err error) {
	buf := make([]byte, 64<<10) // an answer is an error's number and a header
	for {
		n, _, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return answers, overrun, nil
		case errors.Is(err, unix.ENOBUFS):
			overrun = true
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, false, fmt.Errorf("reading what nftables answers: %w", err)
		default:
			answers = append(answers, buf[:n]...)
		}
	}
}

// transaction is messages between the two that make them one. Their sequence numbers count from 0 on.
type transaction struct {
	data []byte
	// at is where the messages begin, by their numbers.
	at []int
}

// newTransaction numbers the messages, and asks for the one acknowledgement.
func newTransaction(data []byte) *transaction {
	t := &transaction{data: data}
	for at := 0; at < len(t.data); at += align(int(binary.NativeEndian.Uint32(t.data[at:]))) {
		binary.NativeEndian.PutUint32(t.data[at+8:], uint32(len(t.at))) //nolint:gosec // bounded by the limit
		t.at = append(t.at, at)
	}
	flags := t.data[t.at[t.last()]+6:]
	binary.NativeEndian.PutUint16(flags, binary.NativeEndian.Uint16(flags)|unix.NLM_F_ACK)
	return t
}

// last is the number of the last message before the end. Kernels before Linux 6.10 do not acknowledge the end itself.
func (t *transaction) last() int { return len(t.at) - 2 }

func align(n int) int { return (n + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }

// begin begins a transaction, in the place of another.
func begin(b []byte) []byte { return appendFrame(b[:0], unix.NFNL_MSG_BATCH_BEGIN) }

func appendFrame(b []byte, kind uint16) []byte {
	b = binary.NativeEndian.AppendUint32(b, frameBytes)
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST)
	b = append(b, make([]byte, 8)...) // its number, and no port
	b = append(b, unix.AF_UNSPEC, unix.NFNETLINK_V0)
	return binary.BigEndian.AppendUint16(b, unix.NFNL_SUBSYS_NFTABLES)
}

// outcome reads the kernel's answers. A transaction was carried out when its last message is acknowledged and none is
// refused: of a refused one, messages that are not wrong themselves are acknowledged, too.
func (t *transaction) outcome(answers []byte, overrun bool) error {
	var refusals []error
	refused, acknowledged := 0, false
	for len(answers) >= unix.SizeofNlMsghdr {
		size := int(binary.NativeEndian.Uint32(answers))
		if size < unix.SizeofNlMsghdr || size > len(answers) {
			return fmt.Errorf("%w: an answer of %d bytes in %d", ErrUnclear, size, len(answers))
		}
		kind, data := binary.NativeEndian.Uint16(answers[4:]), answers[unix.SizeofNlMsghdr:size]
		answers = answers[min(align(size), len(answers)):]
		if kind != unix.NLMSG_ERROR || len(data) < 4+unix.SizeofNlMsghdr {
			continue
		}
		errno := -int32(binary.NativeEndian.Uint32(data)) //nolint:gosec // the kernel's are negative
		number := int(binary.NativeEndian.Uint32(data[4+8:]))
		if errno == 0 {
			acknowledged = acknowledged || number == t.last()
			continue
		}
		if refused++; refused <= mostRefusals {
			refusals = append(refusals, fmt.Errorf("%s: %w", t.describe(number), unix.Errno(errno)))
		}
	}
	switch {
	case refused > mostRefusals:
		return fmt.Errorf("%w\nand %d more", errors.Join(refusals...), refused-mostRefusals)
	case refused > 0:
		return errors.Join(refusals...)
	case overrun:
		return fmt.Errorf("%w: %w", ErrUnclear, unix.ENOBUFS)
	case !acknowledged:
		return ErrUnclear
	default:
		return nil
	}
}

// describe says what the message of a number is about.
func (t *transaction) describe(number int) string {
	if number <= 0 || number >= len(t.at)-1 {
		return "the transaction"
	}
	m := t.data[t.at[number]:t.at[number+1]]
	what := fmt.Sprintf("message %d of %d", number, t.last())
	if number == 1 {
		what = "the transaction or " + what // what is wrong with the whole is answered to the first message
	}
	kind, nameType := kindOf(binary.NativeEndian.Uint16(m[4:]) & 0xff)
	attrs, err := netlink.UnmarshalAttributes(m[unix.SizeofNlMsghdr+genmsgBytes:])
	if kind == "" || err != nil {
		return what
	}
	what += ", " + kind
	for _, a := range attrs {
		if a.Type == nameType {
			what += " " + strings.TrimRight(string(a.Data), "\x00")
		}
	}
	return what
}

// kindOf says what messages of a type do, and which of their attributes is the name of what they do it to.
func kindOf(message uint16) (kind string, name uint16) {
	switch message {
	case unix.NFT_MSG_NEWTABLE:
		return "making table", unix.NFTA_TABLE_NAME
	case unix.NFT_MSG_DELTABLE:
		return "deleting table", unix.NFTA_TABLE_NAME
	case unix.NFT_MSG_NEWCHAIN:
		return "making chain", unix.NFTA_CHAIN_NAME
	case unix.NFT_MSG_DELCHAIN:
		return "deleting chain", unix.NFTA_CHAIN_NAME
	case unix.NFT_MSG_NEWRULE:
		return "making a rule of chain", unix.NFTA_RULE_CHAIN
	case unix.NFT_MSG_NEWSET:
		return "making set", unix.NFTA_SET_NAME
	case unix.NFT_MSG_DELSET:
		return "deleting set", unix.NFTA_SET_NAME
	case unix.NFT_MSG_NEWSETELEM:
		return "adding elements to set", unix.NFTA_SET_ELEM_LIST_SET
	case unix.NFT_MSG_DELSETELEM:
		return "deleting elements of set", unix.NFTA_SET_ELEM_LIST_SET
	default:
		return "", 0
	}
}
