package services

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"

	"monoplane.dev/client/cache"
	"monoplane.dev/nodeagent/network/nft"
)

// Config is what an Applier works with.
type Config struct {
	// NFTables opens a connection that nftables of the namespace is read with. It is closed after each use when it is a
	// lasting one.
	NFTables func() (*nftables.Conn, error)
	// Netfilter opens a socket of family NETLINK_NETFILTER in the namespace, for changes of nftables and for connection
	// tracking.
	Netfilter func() (*netlink.Conn, error)
	// Inside are the ranges that pods have addresses from: for them externalTrafficPolicy does not count.
	Inside []netip.Prefix
	// Logger defaults to none.
	Logger *slog.Logger
}

// Change gives a Service its rules; nil when it has none any more.
type Change struct {
	Service cache.Key
	Rules   *Rules
}

// Applier makes the kernel's table say what Services want. Its methods may be called from any goroutine.
type Applier struct {
	cfg   Config
	table *table

	mu     sync.Mutex
	ledger *ledger
	// kernel is nil while it is not known what the table has: before the first reading, and after an error.
	kernel *kernel
	// dirty is what may differ from the table, beyond what the next change touches.
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
		return nil, errors.New("services: NFTables or Netfilter is missing")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Applier{
		cfg: cfg, table: newTable(cfg.Inside), ledger: newLedger(), dirty: newTouched(), mostBytes: nft.MostBytes,
	}, nil
}

// Apply makes changes count. After an error they are remembered and made with the next call, which may have none of
// its own. The first call replaces whatever Services the table had, so it should have all of them.
func (a *Applier) Apply(ctx context.Context, changes []Change) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range changes {
		a.ledger.set(c.Service, c.Rules, a.dirty)
	}
	return a.settle(ctx)
}

// Verify undoes what others have done to the table. It costs next to nothing while nobody has changed any table of the
// namespace.
func (a *Applier) Verify(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.kernel != nil {
		if g, err := nft.Generation(a.cfg.Netfilter); err == nil && g == a.generation {
			return a.settle(ctx)
		}
	}
	a.kernel = nil
	return a.settle(ctx)
}

// settle makes the table what the ledger says, reading it first when it is not known.
func (a *Applier) settle(ctx context.Context) error {
	return nft.Attempt(ctx, a.attempt, func(err error) {
		a.kernel = nil
		a.cfg.Logger.Warn("Rules of Services could not be changed", "err", err)
	})
}

func (a *Applier) attempt() error {
	b, err := nft.NewBatch(a.cfg.Netfilter, a.mostBytes)
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	if err := a.know(b); err != nil {
		return err
	}
	changes, err := a.plan()
	if err != nil {
		return err
	}
	if err := a.carryOut(b, changes); err != nil {
		return err
	}
	forget := a.dirty.entries
	a.dirty = newTouched()
	if err := a.forgetFlows(forget); err != nil {
		for e := range forget {
			a.dirty.entries[e] = true
		}
		return fmt.Errorf("forgetting UDP flows: %w", err)
	}
	return nil
}

// know reads the table unless it is known. Where its fixed part is missing or damaged the batch begins with a new one.
func (a *Applier) know(b *nft.Batch) error {
	if a.kernel != nil {
		return nil
	}
	conn, err := a.cfg.NFTables()
	if err != nil {
		return fmt.Errorf("opening nftables: %w", err)
	}
	defer func() { _ = conn.CloseLasting() }()
	wanted := make(map[string]int, len(a.ledger.chains))
	for name, c := range a.ledger.chains {
		wanted[name] = nft.RuleCount(a.table.chainRules(c))
	}
	// Before reading, so that a change meanwhile is seen by the next Verify.
	generation, genErr := nft.Generation(a.cfg.Netfilter)
	k, err := readKernel(conn, a.table, wanted)
	switch {
	case errors.Is(err, nft.ErrForeign):
		a.cfg.Logger.Warn("The nftables table of Services is made anew", "table", TableName, "why", err)
	case err != nil:
		return err
	}
	if !k.fixed {
		if err := errors.Join(a.table.create(b.Conn, k.exists), b.End()); err != nil {
			return fmt.Errorf("making table %s: %w", TableName, err)
		}
		k = newKernel()
		k.exists, k.fixed = true, true
	}
	if genErr != nil {
		a.cfg.Logger.Warn("The generation of the nftables ruleset cannot be read", "err", genErr)
	}
	a.generation = generation
	a.kernel, a.dirty = k, a.ledger.everything()
	k.everything(a.dirty)
	return nil
}

// create makes the fixed part, in place of a table that exists.
func (t *table) create(conn *nftables.Conn, exists bool) error {
	if exists {
		conn.DelTable(t.Table)
	}
	conn.CreateTable(t.Table)
	for _, s := range t.sets() {
		if err := conn.AddSet(t.lasting.Number(s), nil); err != nil {
			return err
		}
	}
	for i, v6 := range []bool{false, true} {
		if elements := nft.Intervals(nft.Ranges(t.ranges), v6); len(elements) > 0 {
			if err := conn.SetAddElements(t.inside[i], elements); err != nil {
				return err
			}
		}
	}
	t.lasting.AddFixed(conn)
	return nil
}
