package services_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/network/nft"
	"monoplane.dev/nodeagent/network/services"
)

// written is what the kernel says has been written to nftables: how many objects in how many bytes, by how many
// transactions.
type written struct{ objects, bytes, transactions int }

// watch returns a function that says what has been written since its last call. The kernel tells of a transaction
// before it answers the one who made it.
func (w *world) watch() func() written {
	w.t.Helper()
	conn, err := w.node.Netfilter()
	if err == nil {
		w.t.Cleanup(func() { _ = conn.Close() })
		err = conn.JoinGroup(unix.NFNLGRP_NFTABLES)
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
				if binary.NativeEndian.Uint16(rest[4:])&0xff == unix.NFT_MSG_NEWGEN {
					all.transactions++
				} else {
					all.objects++
					all.bytes += size
				}
				rest = rest[min((size+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1), len(rest)):]
			}
		}
	}
}

// transactions returns how many transactions of nftables f makes.
func (w *world) transactions(f func()) uint32 {
	w.t.Helper()
	now := func() uint32 {
		g, err := nft.Generation(func() (*netlink.Conn, error) { return w.node.Netfilter() })
		if err != nil {
			w.t.Fatal(err)
		}
		return g
	}
	before := now()
	f()
	return now() - before
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
	for _, c := range []struct {
		name    string
		changes []services.Change
		want    uint32
	}{
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
	// What does not fit into one transaction takes some, not one for each Service.
	const many, mostTransactions = 2000, 200
	if got := w.transactions(func() { w.apply(batch(few, many-few, 1, 2)...) }); got > mostTransactions {
		t.Errorf("%d Services at once are %d transactions", many-few, got)
	}
	for i, c := range change() {
		// The kernel names sets by numbers that it counts up, which get longer.
		if few := amongFew[i]; c.objects != few.objects || c.transactions != 1 || c.bytes > few.bytes+few.bytes/20 {
			t.Errorf("among %d Services a change of one is %+v; among few it is %+v", many, c, few)
		}
	}
	if got := w.transactions(func() { w.apply(batch(0, many)...) }); got > mostTransactions {
		t.Errorf("%d Services that go at once are %d transactions", many, got)
	}
	w.same()
}

// same checks that the kernel's table says what the Services want.
func (w *world) same() {
	w.t.Helper()
	if differs, err := w.applier.Differences(); err != nil || differs != "" {
		w.t.Error(differs, err)
	}
}
