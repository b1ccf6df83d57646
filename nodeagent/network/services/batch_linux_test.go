package services_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/network/nft"
	"monoplane.dev/nodeagent/network/services"
)

// written is what the kernel says has been written to nftables: how many objects in how many bytes, by how many
// transactions.
type written struct {
	objects, bytes, transactions int
	// led is by how many transactions it was changed where connections are led.
	led int
	// lost says that a transaction has taken away more of where connections are led than it has put there.
	lost bool
}

// watch returns a function that says what has been written since its last call. The kernel tells of a transaction
// before it answers the one who made it.
func (w *world) watch() func() written {
	w.t.Helper()
	conn, err := w.node.Netfilter()
	if err == nil {
		w.t.Cleanup(func() { _ = conn.Close() })
		err = errors.Join(conn.JoinGroup(unix.NFNLGRP_NFTABLES), conn.SetReadBuffer(4<<20))
	}
	if err != nil {
		w.t.Fatal(err)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		w.t.Fatal(err)
	}
	buf := make([]byte, 1<<20)
	return func() (all written) {
		w.t.Helper()
		led := map[uint16]int{} // by the kind of message, in a transaction
		for {
			var n int
			var err error
			cerr := raw.Control(func(fd uintptr) { n, _, err = unix.Recvfrom(int(fd), buf, unix.MSG_DONTWAIT) })
			switch err = errors.Join(err, cerr); {
			case errors.Is(err, unix.EAGAIN):
				return all
			case err != nil:
				w.t.Fatal(err)
			}
			for rest := buf[:n]; len(rest) >= unix.SizeofNlMsghdr; {
				size := int(binary.NativeEndian.Uint32(rest))
				switch kind := binary.NativeEndian.Uint16(rest[4:]) & 0xff; kind {
				case unix.NFT_MSG_NEWGEN:
					all.transactions++
					if len(led) > 0 {
						all.led++
					}
					all.lost = all.lost || led[unix.NFT_MSG_DELSETELEM] > led[unix.NFT_MSG_NEWSETELEM]
					clear(led)
				default:
					all.objects++
					all.bytes += size
					if n := elements(rest[:size], "services4"); n > 0 {
						led[kind] += n
					}
				}
				rest = rest[min((size+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1), len(rest)):]
			}
		}
	}
}

// elements returns how many elements of a set a message tells of.
func elements(message []byte, set string) (n int) {
	kind := binary.NativeEndian.Uint16(message[4:]) & 0xff
	if kind != unix.NFT_MSG_NEWSETELEM && kind != unix.NFT_MSG_DELSETELEM {
		return 0
	}
	d, err := netlink.NewAttributeDecoder(message[unix.SizeofNlMsghdr+4:])
	if err != nil {
		return 0
	}
	name := ""
	for d.Next() {
		switch d.Type() {
		case unix.NFTA_SET_ELEM_LIST_SET:
			name = d.String()
		case unix.NFTA_SET_ELEM_LIST_ELEMENTS:
			d.Nested(func(each *netlink.AttributeDecoder) error {
				for each.Next() {
					n++
				}
				return nil
			})
		}
	}
	if name != set {
		return 0
	}
	return n
}

// transactions returns how many transactions of nftables f makes.
func (w *world) transactions(f func()) uint32 {
	w.t.Helper()
	before := w.node.Generation()
	f()
	return w.node.Generation() - before
}

// numbered returns the change of a Service of a number, whose name and addresses are as long as those of any other.
func numbered(i int, ends ...int) services.Change {
	s := service(fmt.Sprintf("s%04d", i), "1", func(s *corev1.Service) {
		s.Spec.ClusterIPs = []string{fmt.Sprintf("10.96.%d.%d", 1+i/100, 100+i%100)}
		s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	})
	if len(ends) == 0 {
		return services.Change{Service: key(s)}
	}
	return change(s, ready(ends...))
}

func batch(first, n int, ends ...int) (all []services.Change) {
	for i := range n {
		all = append(all, numbered(first+i, ends...))
	}
	return all
}

// TestTransactions: a batch is one transaction where it fits into one, and a change of one Service always is. What is
// written for that is the same, however many Services there are.
func TestTransactions(t *testing.T) {
	w := newWorld(t)
	w.apply()
	few := 10
	const several = 150
	// What Linux allows who is not root has been no more than this.
	w.applier.SetMostBytes(416 << 10)
	for _, c := range []struct {
		name    string
		changes []services.Change
		want    uint32
	}{
		{"two hundred Services", batch(few, 200, 1, 2), 1},
		{"other endpoints of many", batch(few, several, 3), 1},
		{"two hundred go", batch(few, 200), 1},
		{"ten Services", batch(0, few, 1, 2), 1},
		{"other endpoints of all", batch(0, few, 3), 1},
		{"other endpoints of one", batch(0, 1, 1, 2, 3), 1},
		{"the same again", batch(0, 1, 1, 2, 3), 0},
		{"no endpoints of one", []services.Change{change(service("s0000", "1"), nil)}, 1},
		{"one is gone, one is new, one is another", append(append(batch(0, 1), batch(50, 1, 4)...), batch(1, 1, 5)...), 1},
		{"none is left", append(batch(1, few-1), batch(50, 1)...), 1},
	} {
		if got := w.transactions(func() { w.apply(c.changes...) }); got != c.want {
			t.Errorf("%s: %d transactions; want %d", c.name, got, c.want)
		}
		w.same()
	}

	w.applier.SetMostBytes(nft.MostBytes)
	w.apply(batch(0, few, 1, 2)...)
	change := func() (all []written) {
		t.Helper()
		since := w.watch()
		for _, ends := range [][]int{{1, 2, 3}, {4}, nil, {1, 2}} {
			w.apply(numbered(5, ends...))
			all = append(all, since())
		}
		return all
	}
	amongFew := change()
	for _, c := range amongFew {
		if c.transactions != 1 || c.objects == 0 {
			t.Errorf("a change of one Service is %+v", c)
		}
	}
	// What does not fit into one transaction takes some, not one for each Service. Where the kernel allows who is not
	// root large buffers it fits.
	const many, mostTransactions = 2000, 20
	if got := w.transactions(func() { w.apply(batch(few, many-few, 1, 2)...) }); got == 0 || got > mostTransactions {
		t.Errorf("%d Services at once are %d transactions", many-few, got)
	}
	for i, c := range change() {
		// The kernel names sets by numbers that it counts up, which get longer.
		if few := amongFew[i]; c.objects != few.objects || c.transactions != 1 || c.bytes > few.bytes+few.bytes/20 {
			t.Errorf("among %d Services a change of one is %+v; among few it is %+v", many, c, few)
		}
	}
	if got := w.transactions(func() { w.apply(batch(0, many)...) }); got == 0 || got > mostTransactions {
		t.Errorf("%d Services that go at once are %d transactions", many, got)
	}
	w.same()
}

// TestLargeBatches: of a batch that does not fit into one transaction, one changes where connections are led, with all
// that it is to lead to made before. Where that does not fit either, no address is without its Service in between.
func TestLargeBatches(t *testing.T) {
	w := newWorld(t)
	w.apply()
	const many = 40 // changes of 14 KB where connections are led
	for _, mostBytes := range []int{16 << 10, 10 << 10} {
		w.applier.SetMostBytes(mostBytes)
		since := w.watch()
		for i, ends := range [][]int{{1, 2}, {3}, {1, 2, 3}, nil} {
			moved := i == 1 || i == 2
			once := !moved || mostBytes > 14<<10
			w.apply(batch(0, many, ends...)...)
			got := since()
			if moved && got.transactions < 2 || (got.led == 1) != once || got.lost != (ends == nil) {
				t.Errorf("endpoints %v of %d Services, by %d bytes: %+v", ends, many, mostBytes, got)
			}
			w.same()
		}
	}
}

// TestUnclearChange: where the kernel's answer is lost, the table is read, and nothing is done twice.
func TestUnclearChange(t *testing.T) {
	w := newWorld(t)
	w.apply()
	lost := 0
	w.cfg.Netfilter = func() (*netlink.Conn, error) {
		conn, err := w.node.Netfilter()
		if err == nil && lost == 0 {
			// What the kernel tells of each change leaves no room for its answer.
			lost++
			err = errors.Join(conn.JoinGroup(unix.NFNLGRP_NFTABLES), conn.SetReadBuffer(1))
		}
		return conn, err
	}
	var log bytes.Buffer
	w.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	w.applier = w.restarted()
	if got := w.transactions(func() { w.apply(batch(0, 50, 1, 2)...) }); got != 1 {
		t.Errorf("%d transactions", got)
	}
	if !strings.Contains(log.String(), nft.ErrUnclear.Error()) {
		t.Errorf("the log does not say that the answer was lost: %s", log.String())
	}
	w.same()
	if got := w.transactions(func() { w.apply(batch(0, 50, 3)...) }); got != 1 {
		t.Errorf("%d transactions of the next batch", got)
	}
	if got := w.transactions(func() {
		if err := w.applier.Verify(t.Context()); err != nil {
			t.Error(err)
		}
	}); got != 0 {
		t.Errorf("nothing is wrong, and %d transactions put it right", got)
	}
}

// same checks that the kernel's table says what the Services want.
func (w *world) same() {
	w.t.Helper()
	if differs, err := w.applier.Differences(); err != nil || differs != "" {
		w.t.Error(differs, err)
	}
}
