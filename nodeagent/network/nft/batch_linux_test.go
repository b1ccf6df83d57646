package nft_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/network/nft"
	"monoplane.dev/nodeagent/network/test/netnstest"
)

func TestMain(m *testing.M) { os.Exit(netnstest.Main(m)) }

// world is a namespace with an empty table.
type world struct {
	t     *testing.T
	ns    *netnstest.NS
	table *nftables.Table
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, ns: netnstest.New(t), table: &nftables.Table{Name: "t", Family: nftables.TableFamilyINet}}
	b := w.batch(nft.MostBytes)
	b.Conn.AddTable(w.table)
	w.commit(b, 1)
	return w
}

func (w *world) batch(mostBytes int) *nft.Batch {
	w.t.Helper()
	b, err := nft.NewBatch(w.ns.Netfilter, mostBytes)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = b.Close() })
	return b
}

// end ends what belongs together.
func (w *world) end(b *nft.Batch) {
	w.t.Helper()
	if err := b.End(); err != nil {
		w.t.Fatal(err)
	}
}

// commit checks how many transactions a batch is, by what the kernel says and by what the batch says.
func (w *world) commit(b *nft.Batch, want uint32) {
	w.t.Helper()
	w.end(b)
	before := w.ns.Generation()
	got, err := b.Commit()
	if err != nil {
		w.t.Fatal(err)
	}
	if got != want {
		w.t.Errorf("%d transactions; want %d", got, want)
	}
	if last := w.ns.Generation() - before; last > 1 {
		w.t.Errorf("the end of a batch is %d transactions", last)
	}
}

// chain puts a chain with a rule into a batch.
func (w *world) chain(b *nft.Batch, name string) {
	c := b.Conn.AddChain(&nftables.Chain{Table: w.table, Name: name})
	w.rule(b, c)
}

func (w *world) rule(b *nft.Batch, c *nftables.Chain) {
	b.Conn.AddRule(&nftables.Rule{Table: w.table, Chain: c, Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}})
}

// chains returns how many chains there are.
func (w *world) chains() (n int) {
	w.t.Helper()
	w.ns.Rules(func(conn *nftables.Conn) error {
		all, err := conn.ListChains()
		n = len(all)
		return err
	})
	return n
}

// TestBatchIsOneTransaction: thousands of messages are one, for who is not root of the machine as well.
func TestBatchIsOneTransaction(t *testing.T) {
	w := newWorld(t)
	before := w.ns.Generation()
	b := w.batch(nft.MostBytes)
	const n = 1000 // some 150 KB, which the buffers of any machine hold
	for i := range n {
		w.chain(b, fmt.Sprintf("c%04d", i))
		w.end(b)
	}
	w.commit(b, 1)
	if got := w.ns.Generation() - before; got != 1 || w.chains() != n {
		t.Errorf("%d transactions made %d chains", got, w.chains())
	}
	w.commit(b, 1) // nothing further
	if got := w.ns.Generation() - before; got != 1 {
		t.Errorf("nothing is %d transactions", got-1)
	}
}

// TestRefusedBatch: a transaction with a message that the kernel refuses changes nothing, and the error says which one
// it was and why, also where so many are that their answers are too much for the socket.
func TestRefusedBatch(t *testing.T) {
	w := newWorld(t)
	before := w.ns.Generation()
	missing := &nftables.Chain{Table: w.table, Name: "missing"}
	for _, c := range []struct {
		name string
		put  func(b *nft.Batch)
		want []string
	}{
		{"one", func(b *nft.Batch) { w.rule(b, missing) }, []string{
			"message 3 of 5, making a rule of chain missing: no such file or directory",
		}},
		{"many", func(b *nft.Batch) {
			for range 3000 {
				w.rule(b, missing)
			}
		}, []string{"making a rule of chain missing: no such file or directory", "more"}},
		{"ten long ones", func(b *nft.Batch) {
			set := &nftables.Set{Table: w.table, Name: "missing", KeyType: nftables.TypeIPAddr}
			elements := make([]nftables.SetElement, 3000) // of 20 bytes each
			for i := range elements {
				elements[i].Key = []byte{10, 0, byte(i >> 8), byte(i)}
			}
			for range 10 {
				if err := b.Conn.SetAddElements(set, elements); err != nil {
					t.Fatal(err)
				}
				if err := b.Cut(); err != nil {
					t.Fatal(err)
				}
			}
		}, []string{"adding elements to set missing: no such file or directory", "and 7 more"}},
	} {
		b := w.batch(nft.MostBytes)
		w.chain(b, "before")
		c.put(b)
		w.chain(b, "after")
		w.end(b)
		n, err := b.Commit()
		if n != 0 || !errors.Is(err, unix.ENOENT) {
			t.Errorf("%s: %d transactions, %v", c.name, n, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the error does not say %q: %v", c.name, want, err)
			}
		}
		if len(err.Error()) > 1000 {
			t.Errorf("%s: the error is %d bytes", c.name, len(err.Error()))
		}
	}
	// The kernel answers to the first message what is wrong with the whole, and what it does not read at all.
	b := w.batch(nft.MostBytes)
	b.Conn.DelChain(missing)
	w.end(b)
	if _, err := b.Commit(); err == nil || !strings.Contains(err.Error(), "deleting chain missing: no such file") {
		t.Error(err)
	}
	if w.ns.Generation() != before || w.chains() != 0 {
		t.Errorf("the kernel has made %d transactions and %d chains", w.ns.Generation()-before, w.chains())
	}
}

// TestBatchIsCut: what is too much for the socket is carried out in several transactions. What belongs together is in
// one, unless that alone is too much.
func TestBatchIsCut(t *testing.T) {
	w := newWorld(t)
	const mostBytes, chainBytes = 20 << 10, 150
	few, many := mostBytes/chainBytes/4, 3*mostBytes/chainBytes
	number := 0
	put := func(b *nft.Batch, n int, each func() error) {
		for range n {
			w.chain(b, fmt.Sprintf("c%06d", number))
			number++
			if err := each(); err != nil {
				t.Fatal(err)
			}
		}
	}
	carriedOut := func(f func()) uint32 {
		before := w.ns.Generation()
		f()
		return w.ns.Generation() - before
	}
	b := w.batch(mostBytes)
	if got := carriedOut(func() { put(b, many, b.End) }); got == 0 || int(got) > many/few {
		t.Errorf("%d chains, each for itself, are %d transactions before the end", many, got)
	}

	// What is together is not carried out with half of what was before.
	b = w.batch(mostBytes)
	put(b, few, b.End)
	put(b, few, b.Cut)
	if got := carriedOut(func() { w.end(b) }); got != 0 {
		t.Errorf("what fits is carried out early, in %d transactions", got)
	}
	put(b, 3*few, b.Cut)
	chains := w.chains()
	if got := carriedOut(func() { w.end(b) }); got != 1 || w.chains() != chains+2*few {
		t.Errorf("before what no longer fits, %d transactions make %d chains; want %d", got, w.chains()-chains, 2*few)
	}
	w.commit(b, 2)

	// Together it is too much.
	b = w.batch(mostBytes)
	put(b, many, b.Cut)
	if got := carriedOut(func() { w.end(b) }); got == 0 {
		t.Error("what is too much for one transaction waits for the end")
	}
	if _, err := b.Commit(); err != nil {
		t.Error(err)
	}
	// And it cannot be cut.
	b = w.batch(mostBytes)
	before := w.chains()
	put(b, many, func() error { return nil })
	w.end(b)
	if _, err := b.Commit(); !errors.Is(err, unix.EMSGSIZE) || w.chains() != before {
		t.Errorf("%v; %d chains are made", err, w.chains()-before)
	}
}

// TestBatchIsFull: transactions may be exactly as long as the batch takes them for.
func TestBatchIsFull(t *testing.T) {
	w := newWorld(t)
	for extra := range 32 {
		b := w.batch(8<<10 + 2*extra)
		for i := range 300 { // a length that divides by 4 only
			b.Conn.AddChain(&nftables.Chain{Table: w.table, Name: fmt.Sprintf("%03d", i)})
			w.end(b)
		}
		if n, err := b.Commit(); err != nil || n < 2 {
			t.Errorf("%d more bytes: %d transactions, %v", 2*extra, n, err)
		}
	}
}

// TestUnclearBatch: where the answer is lost, it is not known whether the change was made, and the error says so.
func TestUnclearBatch(t *testing.T) {
	w := newWorld(t)
	before := w.ns.Generation()
	b, err := nft.NewBatch(w.deaf, nft.MostBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	for i := range 200 {
		w.chain(b, fmt.Sprintf("c%d", i))
	}
	w.end(b)
	if n, err := b.Commit(); n != 0 || !errors.Is(err, nft.ErrUnclear) || !errors.Is(err, unix.ENOBUFS) {
		t.Errorf("%d transactions, %v", n, err)
	}
	if got := w.ns.Generation() - before; got != 1 {
		t.Errorf("the kernel has made %d transactions", got)
	}
}

// deaf opens a socket that has no room for an answer behind what the kernel tells of each change.
func (w *world) deaf() (*netlink.Conn, error) {
	conn, err := w.ns.Netfilter()
	if err != nil {
		return nil, err
	}
	return conn, errors.Join(conn.JoinGroup(unix.NFNLGRP_NFTABLES), conn.SetReadBuffer(1))
}

// What was decided by rules that somebody has changed since is not carried out.
func TestBatchOfAGeneration(t *testing.T) {
	w := newWorld(t)
	seen := w.ns.Generation()
	b := w.batch(nft.MostBytes)
	b.OnlyOf(seen)
	b.Conn.AddTable(&nftables.Table{Name: "first", Family: nftables.TableFamilyINet})
	w.commit(b, 1)
	b.OnlyOf(seen)
	b.Conn.AddTable(&nftables.Table{Name: "second", Family: nftables.TableFamilyINet})
	w.end(b)
	if n, err := b.Commit(); n != 1 || !errors.Is(err, unix.ERESTART) {
		t.Errorf("a transaction for rules of before: %d transactions, %v; want ERESTART", n-1, err)
	}
	if now := w.ns.Generation(); now != seen+1 {
		t.Errorf("the generation %d became %d; want one more", seen, now)
	}
}
