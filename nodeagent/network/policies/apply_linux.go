package policies

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"

	"monoplane.dev/nodeagent/network/nft"
)

// Config is what an Applier works with.
type Config struct {
	// NFTables opens a connection that nftables of the namespace is read with. It is closed after each use when it is a
	// lasting one.
	NFTables func() (*nftables.Conn, error)
	// Netfilter opens a socket of family NETLINK_NETFILTER in the namespace, for changes of nftables and to learn whether
	// anybody else has made any.
	Netfilter func() (*netlink.Conn, error)
	// Logger defaults to none.
	Logger *slog.Logger
}

// Applier makes the kernel's table what a World wants. Its methods, and those of the World meanwhile, are called by
// one goroutine at a time.
type Applier struct {
	cfg   Config
	table *table

	// kernel is nil while it is not known what the table has: before the first reading, and after an error.
	kernel *kernel
	// dirty is what may differ from the table.
	dirty *touched
	// generation is the number of the ruleset when the table was read, and one more for each transaction since. While
	// the kernel's number is the same, nobody else has changed anything.
	generation uint32
	// mostBytes is what transactions are asked to be at most, see nft.NewBatch.
	mostBytes int
}

// NewApplier returns an Applier that has not touched anything yet.
func NewApplier(cfg Config) (*Applier, error) {
	if cfg.NFTables == nil || cfg.Netfilter == nil {
		return nil, errors.New("policies: NFTables or Netfilter is missing")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Applier{cfg: cfg, table: newTable(), dirty: newTouched(), mostBytes: nft.MostBytes}, nil
}

// Apply makes what has changed in the world count. After an error it is remembered, and made with the next call. The
// first call replaces whatever the table had, so the world should know all by then.
func (a *Applier) Apply(ctx context.Context, w *World) error {
	a.dirty.merge(w.take())
	return a.settle(ctx, w)
}

// Verify undoes what others have done to the table. It costs next to nothing while nobody has changed any table of the
// namespace.
func (a *Applier) Verify(ctx context.Context, w *World) error {
	a.dirty.merge(w.take())
	if a.kernel != nil {
		if g, err := nft.Generation(a.cfg.Netfilter); err == nil && g == a.generation {
			return a.settle(ctx, w)
		}
	}
	a.kernel = nil
	return a.settle(ctx, w)
}

// settle makes the table what is wanted, reading it first when it is not known.
func (a *Applier) settle(ctx context.Context, w *World) error {
	return nft.Attempt(ctx, func() error { return a.attempt(w) }, func(err error) {
		a.kernel = nil
		a.cfg.Logger.Warn("Rules of NetworkPolicies could not be changed", "err", err)
	})
}

func (a *Applier) attempt(w *World) error {
	idle := len(w.isolated) == 0
	if a.kernel != nil && !a.kernel.exists && idle {
		a.dirty = newTouched() // a table that is made begins with everything
		return nil
	}
	b, err := nft.NewBatch(a.cfg.Netfilter, a.mostBytes)
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	if err := a.know(w); err != nil {
		return err
	}
	if idle {
		return a.remove(b)
	}
	if err := a.make(b, w); err != nil {
		return err
	}
	if err := a.carryOut(b, a.plan(w)); err != nil {
		return err
	}
	a.dirty = newTouched()
	return nil
}

// know reads the table unless it is known.
func (a *Applier) know(w *World) error {
	if a.kernel != nil {
		return nil
	}
	conn, err := a.cfg.NFTables()
	if err != nil {
		return fmt.Errorf("opening nftables: %w", err)
	}
	defer func() { _ = conn.CloseLasting() }()
	wanted := make(map[string]int, len(w.chains))
	for name, c := range w.chains {
		wanted[name] = nft.RuleCount(a.table.chainRules(c))
	}
	// Before reading, so that a change meanwhile is seen by the next Verify.
	generation, genErr := nft.Generation(a.cfg.Netfilter)
	k, err := readKernel(conn, a.table, wanted)
	switch {
	case errors.Is(err, nft.ErrForeign):
		a.cfg.Logger.Warn("The nftables table of NetworkPolicies is made anew", "table", TableName, "why", err)
	case err != nil:
		return err
	}
	if genErr != nil {
		a.cfg.Logger.Warn("The generation of the nftables ruleset cannot be read", "err", genErr)
	}
	a.generation, a.kernel = generation, k
	a.dirty = w.everything()
	k.everything(a.dirty)
	return nil
}

// remove takes the table away, with its hooks.
func (a *Applier) remove(b *nft.Batch) error {
	if a.kernel.exists {
		b.Conn.DelTable(a.table.Table)
		if err := b.End(); err != nil {
			return fmt.Errorf("removing table %s: %w", TableName, err)
		}
		transactions, err := b.Commit()
		if err != nil {
			return fmt.Errorf("removing table %s: %w", TableName, err)
		}
		a.generation += transactions
	}
	a.kernel, a.dirty = newKernel(), newTouched()
	return nil
}

// make makes the fixed part where it is missing or damaged. In place of a table that exists it makes a whole new one:
// what is isolated stays so, because it is one transaction with all that is wanted, unless that is too much for one.
func (a *Applier) make(b *nft.Batch, w *World) error {
	if a.kernel.fixed {
		return nil
	}
	if a.kernel.exists {
		b.Conn.DelTable(a.table.Table)
	}
	t := a.table
	b.Conn.CreateTable(t.Table)
	for _, name := range fixedSets() {
		if err := b.Conn.AddSet(t.lasting.Number(t.set(name)), nil); err != nil {
			return err
		}
	}
	t.lasting.AddFixed(b.Conn)
	if err := b.End(); err != nil {
		return fmt.Errorf("making table %s: %w", TableName, err)
	}
	// What follows is in the same transaction, as far as it fits.
	k := newKernel()
	k.exists, k.fixed = true, true
	a.kernel, a.dirty = k, w.everything()
	return nil
}
