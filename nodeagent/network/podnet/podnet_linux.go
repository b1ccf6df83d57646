package podnet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"monoplane.dev/internal/userids"
	"monoplane.dev/nodeagent/network"
	"monoplane.dev/nodeagent/network/enforcer"
	"monoplane.dev/nodeagent/network/nodens"
	"monoplane.dev/nodeagent/network/policies"
	"monoplane.dev/nodeagent/runtime/oci"
)

// ErrNoRanges says that the node has not been told yet which addresses its pods may have.
var ErrNoRanges = errors.New("the node has no range of addresses for its pods yet (spec.podCIDRs)")

// ErrNotHere says that an address is not reached through the node namespace.
var ErrNotHere = errors.New("the address is not one of the node's pods or Services")

// Config is what New takes.
type Config struct {
	// Cluster tells the network from those of other clusters and nodes of this machine; see nodens.Config.
	Cluster string
	// Dir holds the register of the addresses and the state of the node namespace. It is made with mode 0700 where it is
	// missing.
	Dir string
	// ServiceRanges are what cluster IPs come from.
	ServiceRanges []netip.Prefix
	// Rootless has the node namespace made as without root; processes that are not root do that anyway.
	Rootless bool
	// Policies isolates sandboxes before they are connected. Nil isolates none.
	Policies *enforcer.Enforcer
	// IDs are those of the pods' users, without root; one if there are none here.
	IDs userids.Maps
	// Log takes what is repaired and what goes wrong later. Required.
	Log *slog.Logger
}

func (c Config) namespace(ranges []netip.Prefix) nodens.Config {
	return nodens.Config{Cluster: c.Cluster, Dir: c.Dir, PodRanges: ranges, ServiceRanges: c.ServiceRanges,
		Rootless: c.Rootless, IDs: c.IDs, Log: c.Log}
}

// Network is the network of one node. It is an oci.Network; its methods may be called concurrently. None waits for
// another longer than its context lasts.
type Network struct {
	cfg Config

	// turn has whoever changes the network, one at a time. What such a change waits for may never answer, so that it is
	// taken with a context (see begin), and mu is held for no longer than it takes to look.
	turn chan struct{}
	// connected are the sandboxes that have addresses, cut those of them that could not be connected again when the
	// namespace was made, and are tried again. They belong to who has the turn.
	connected map[string]oci.Sandbox
	cut       map[string]bool

	mu sync.Mutex
	// ranges are what the node was told, empty before.
	ranges []netip.Prefix
	// lost are the sandboxes that nobody can connect again.
	lost map[string]bool
	// isCut says that there are sandboxes in cut.
	isCut bool
	// broken says why there is no namespace; nil while there is one.
	broken  error
	network *network.Network
	// changed is closed, and made anew, when namespace has changed.
	changed chan struct{}
	// closed says that no namespace is to be opened any more.
	closed bool
	// asked is the question whether the namespace is there that is under way, or whose answer nobody has taken.
	asked *question

	life context.Context // Ends with Close.
	die  context.CancelFunc
}

// question asks a network whether its namespace is there. Err is what it says once done is closed.
type question struct {
	network *network.Network
	done    chan struct{}
	err     error
}

// openTime is how long the namespace may take until it is open: a helper that hangs is given up within.
const openTime = 2 * time.Minute

// readyTime is how long Ready waits for a change that is under way. It is less than a node's agent waits for a status,
// which then learns what there is to wait for.
const readyTime = 2 * time.Second

// New returns a network that connects nothing before Configure.
func New(cfg Config) *Network {
	life, die := context.WithCancel(context.Background())
	return &Network{life: life, die: die, cfg: cfg, turn: make(chan struct{}, 1), broken: ErrNoRanges,
		connected: map[string]oci.Sandbox{}, cut: map[string]bool{}, lost: map[string]bool{}, changed: make(chan struct{})}
}

// begin waits for the turn to change the network, which end gives back.
func (n *Network) begin(ctx context.Context) error {
	select {
	case n.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the pod network is busy with another change: %w", context.Cause(ctx))
	}
}

func (n *Network) end() { <-n.turn }

// now returns the open network, and why it cannot be used, or is not there.
func (n *Network) now() (open *network.Network, broken error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.network, n.broken
}

// Configure makes the network with the ranges of the node, one of each family. Existing are the sandboxes that there
// are: they are connected as they were, what others have is given back. Told the same again, or no range, it does
// nothing. spec: NET-1
func (n *Network) Configure(ctx context.Context, ranges []netip.Prefix, existing []oci.Sandbox) error {
	if len(ranges) == 0 {
		return nil
	}
	if err := n.await(ctx, ""); err != nil {
		return err
	}
	if err := n.begin(ctx); err != nil {
		return err
	}
	end := n.end
	defer func() { end() }()
	n.mu.Lock()
	known, broken := n.ranges, n.broken
	if len(known) == 0 {
		n.ranges = slices.Clone(ranges)
	}
	n.mu.Unlock()
	switch {
	case slices.Equal(ranges, known) && broken == nil:
		return nil
	case len(known) > 0 && !slices.Equal(ranges, known):
		return fmt.Errorf("the node's pods have addresses of %v, which cannot be changed to %v while it runs", known, ranges)
	}
	for _, s := range existing {
		n.connected[s.ID] = s
	}
	end = func() {} // reopen's
	return n.reopen(ctx)
}

// reopen opens the namespace, also when the caller does not wait for that any more: a helper that hangs is waited for
// longer than any heartbeat is. It ends the caller's turn.
func (n *Network) reopen(ctx context.Context) error {
	done := make(chan error, 1)
	go func() {
		defer n.end()
		bounded, cancel := context.WithTimeout(n.life, openTime)
		defer cancel()
		err := n.open(bounded)
		if err != nil && ctx.Err() != nil && n.life.Err() == nil { // Nobody else says it.
			n.cfg.Log.Warn("the pod network cannot be made; it is tried again", "error", err)
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errOpening, context.Cause(ctx))
	}
}

// ask asks whether the namespace of a network is there, and has it verified. It is asked once at a time, and goes on
// when the caller does not wait any more: who asks next gets the answer. Known is false when there is none before ctx
// ends.
func (n *Network) ask(ctx context.Context, open *network.Network) (gone error, known bool) {
	n.mu.Lock()
	q := n.asked
	if q == nil || q.network != open {
		q = &question{network: open, done: make(chan struct{})}
		n.asked = q
		go func() {
			defer close(q.done)
			ns := open.Namespace()
			if q.err = ns.Alive(n.life); q.err != nil {
				return
			}
			if err := ns.Verify(n.life); err != nil && n.life.Err() == nil {
				n.cfg.Log.Error("the pod network cannot be verified; it is tried again", "error", err)
			}
		}()
	}
	n.mu.Unlock()
	select {
	case <-q.done:
	case <-ctx.Done():
		return nil, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.asked == q {
		n.asked = nil
	}
	return q.err, true
}

// open makes the namespace, or finds it, and connects what is to be connected. The caller has the turn.
func (n *Network) open(ctx context.Context) error {
	n.mu.Lock()
	before, ranges, closed := n.network, n.ranges, n.closed
	if !closed {
		n.network, n.broken = nil, errOpening
	}
	n.mu.Unlock()
	if closed {
		return errClosed
	}
	if before != nil {
		if err := before.Close(); err != nil {
			n.cfg.Log.Warn("the node namespace that is gone cannot be let go of", "error", err)
		}
	}
	made, err := n.make(ctx, ranges)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		if made != nil {
			err = made.Close()
		}
		return errors.Join(errClosed, err)
	}
	n.network, n.broken = made, err
	close(n.changed)
	n.changed = make(chan struct{})
	return err
}

// make makes the namespace, or finds it, and connects what is to be connected. With an error it may return a network
// nevertheless, in which not all is as it should be.
func (n *Network) make(ctx context.Context, ranges []netip.Prefix) (*network.Network, error) {
	if err := os.MkdirAll(n.cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("the directory of the pod network: %w", err)
	}
	made, err := network.Open(ctx, n.cfg.namespace(ranges))
	if err != nil {
		return nil, err
	}
	if err := n.protect(ctx, made, ranges); err != nil {
		return made, err
	}
	if err := made.Retain(ctx, func(id string) bool { _, is := n.connected[id]; return is }); err != nil {
		return made, err
	}
	n.cut = map[string]bool{}
	for id := range n.connected {
		n.cut[id] = true
	}
	n.reconnect(ctx, made)
	return made, nil
}

// reconnect connects sandboxes that are cut off. The caller has the turn.
func (n *Network) reconnect(ctx context.Context, made *network.Network) {
	for _, id := range slices.Sorted(maps.Keys(n.cut)) {
		_, err := n.connect(ctx, made, n.connected[id])
		if err == nil {
			delete(n.cut, id)
			continue
		}
		level := slog.LevelWarn
		if errors.Is(err, fs.ErrNotExist) { // Its last process has ended meanwhile.
			level = slog.LevelDebug
		}
		// The others have a right to theirs.
		n.cfg.Log.Log(ctx, level, "a sandbox cannot be connected again", "sandbox", id, "error", err)
		if errors.Is(err, unix.EPERM) && made.Namespace().Status().Rootless {
			// Its user namespace is below one that has ended, which nobody can enter.
			delete(n.cut, id)
			n.mu.Lock()
			n.lost[id] = true
			n.mu.Unlock()
		}
	}
	n.mu.Lock()
	n.isCut = len(n.cut) > 0
	n.mu.Unlock()
}

// Lost implements oci.Network.
func (n *Network) Lost() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.lost))
}

// Ready returns why pods cannot be connected, and mends what it can: it is asked with every heartbeat. Nobody waits
// while it asks whether the namespace is there.
func (n *Network) Ready(ctx context.Context) error {
	n.mu.Lock()
	open, broken, told, isCut := n.network, n.broken, len(n.ranges) > 0, n.isCut
	n.mu.Unlock()
	if !told {
		return ErrNoRanges
	}
	var gone error
	if open != nil && broken == nil {
		var known bool
		if gone, known = n.ask(ctx, open); gone == nil && !isCut || !known {
			return nil // it may be slow; who connects a sandbox waits for it
		}
	}
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	if err := n.begin(ctx); err != nil {
		if broken != nil {
			return broken
		}
		return err
	}
	if now, broken := n.now(); now != open && broken == nil {
		n.end()
		return nil // somebody else has mended it
	}
	if broken == nil && gone == nil {
		n.reconnect(ctx, open)
		n.end()
		return nil
	}
	if gone != nil {
		n.cfg.Log.Warn("the node namespace is gone and is made anew", "reason", gone)
	}
	return n.reopen(ctx)
}

// await waits for the policies that there are in a namespace, while nobody else has to wait for it.
func (n *Network) await(ctx context.Context, namespace string) error {
	if n.cfg.Policies == nil {
		return nil
	}
	return n.cfg.Policies.Await(ctx, namespace)
}

// protect puts the policies in force in a namespace, for all that is connected there or is going to be at once.
func (n *Network) protect(ctx context.Context, made *network.Network, ranges []netip.Prefix) error {
	if n.cfg.Policies == nil {
		return nil
	}
	var own []netip.Addr
	for _, r := range ranges {
		node, machine := nodens.NodeAddresses(r)
		own = append(own, node, machine)
	}
	var there []enforcer.Sandbox
	for id, addrs := range made.Owners() {
		if s, ok := n.connected[id]; ok {
			there = append(there, isolated(s, addrs))
		}
	}
	ns := made.Namespace()
	return n.cfg.Policies.Use(ctx, policies.Config{
		NFTables: ns.NFTables, Netfilter: ns.Netfilter, Logger: n.cfg.Log,
	}, own, there)
}

// isolated is a sandbox as policies know it.
func isolated(s oci.Sandbox, addrs []netip.Addr) enforcer.Sandbox {
	m := s.Config.GetMetadata()
	return enforcer.Sandbox{
		ID: s.ID, Namespace: m.GetNamespace(), Name: m.GetName(), UID: m.GetUid(), Labels: s.Config.GetLabels(),
		Addrs: addrs,
	}
}

// connect connects a sandbox, isolated as policies say.
func (n *Network) connect(ctx context.Context, to *network.Network, s oci.Sandbox) ([]netip.Addr, error) {
	return to.Attach(ctx, s.ID, s.Namespace, s.Config, func(addrs []netip.Addr) error {
		if n.cfg.Policies == nil {
			return nil
		}
		return n.cfg.Policies.Admit(ctx, isolated(s, addrs))
	})
}

// forget is told that a sandbox is not connected any more.
func (n *Network) forget(sandboxID string) {
	if n.cfg.Policies != nil {
		n.cfg.Policies.Forget(sandboxID)
	}
}

// Attach implements oci.Network.
func (n *Network) Attach(ctx context.Context, s oci.Sandbox) ([]netip.Addr, error) {
	if err := n.await(ctx, s.Config.GetMetadata().GetNamespace()); err != nil {
		return nil, err
	}
	if err := n.begin(ctx); err != nil {
		return nil, err
	}
	defer n.end()
	open, broken := n.now()
	if open == nil {
		return nil, broken
	}
	all, err := n.connect(ctx, open, s)
	if err == nil {
		n.connected[s.ID] = s
	}
	return all, err
}

// Users implements oci.Network.
func (n *Network) Users(ctx context.Context) (*os.File, error) {
	open, broken := n.now()
	switch {
	case open == nil:
		return nil, broken
	case !open.Namespace().Status().Rootless:
		return nil, nil
	}
	return open.Namespace().UserNamespace(ctx)
}

// Dial implements oci.Network.
func (n *Network) Dial(
	ctx context.Context, s oci.Sandbox, protocol string, address netip.AddrPort,
) (net.Conn, error) {
	open, broken := n.now()
	if open == nil {
		return nil, broken
	}
	inside, err := os.Open(s.Namespace)
	if err != nil {
		return nil, fmt.Errorf("the network namespace of the sandbox %s: %w", s.ID, err)
	}
	defer inside.Close()
	return open.Namespace().DialInside(ctx, inside, protocol, address)
}

// DialFrom connects to an address of a pod or Service out of the node namespace; ErrNotHere where the address is
// another one, or the machine reaches them itself.
func (n *Network) DialFrom(ctx context.Context, protocol string, address netip.AddrPort) (net.Conn, error) {
	n.mu.Lock()
	open, ranges := n.network, slices.Concat(n.ranges, n.cfg.ServiceRanges)
	n.mu.Unlock()
	isOurs := slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(address.Addr()) })
	if open == nil || !isOurs || !open.Namespace().Status().Rootless {
		return nil, ErrNotHere
	}
	return open.Namespace().Dial(ctx, protocol, netip.AddrPort{}, address)
}

// MachineReachesServices tells whether programs of the machine itself reach Services, as far as that is known.
func (n *Network) MachineReachesServices() bool {
	if open, _ := n.now(); open != nil {
		return open.Namespace().Status().Services
	}
	return !n.cfg.Rootless && os.Geteuid() == 0
}

// NotForwarded says why the kernel is not the way out of pods; empty if it is, and while that is not known.
func (n *Network) NotForwarded() string {
	if open, _ := n.now(); open != nil {
		return open.Namespace().Status().Why
	}
	return ""
}

// Detach implements oci.Network.
func (n *Network) Detach(ctx context.Context, sandboxID string) error {
	if err := n.begin(ctx); err != nil {
		return err
	}
	defer n.end()
	delete(n.connected, sandboxID)
	delete(n.cut, sandboxID)
	n.mu.Lock()
	delete(n.lost, sandboxID)
	n.mu.Unlock()
	open, _ := n.now()
	if open == nil {
		n.forget(sandboxID)
		return nil // Configure gives back what is nobody's
	}
	if err := open.Detach(ctx, sandboxID); err != nil {
		return err
	}
	n.forget(sandboxID) // its link is gone, and nobody else has its addresses yet
	return nil
}

// Serve calls f with the node namespace whenever it has been made, with a context that ends when the namespace is to
// be used no more, until ctx ends. When f fails it is called again after a second.
func (n *Network) Serve(
	ctx context.Context, f func(ctx context.Context, ns *nodens.Namespace, ranges []netip.Prefix) error,
) error {
	for ctx.Err() == nil {
		n.mu.Lock()
		open, ranges, changed := n.network, n.ranges, n.changed
		if n.broken != nil {
			open = nil
		}
		n.mu.Unlock()
		if open == nil {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		session, cancel := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- f(session, open.Namespace(), ranges) }()
		select {
		case <-changed:
			cancel()
			n.cfg.Log.Debug("the network of Services ended, to begin in another namespace", "reason", <-done)
		case err := <-done:
			cancel()
			if ctx.Err() == nil {
				n.cfg.Log.Warn("the network of Services stopped, and begins again", "error", err)
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	}
	return ctx.Err()
}

// Why there is no namespace.
var (
	errOpening = errors.New("the node namespace is being made")
	errClosed  = errors.New("the network is closed")
)

// Close lets go of the node namespace, which goes on and is found by the next New. It waits for nobody: what is being
// changed ends with an error.
func (n *Network) Close() error {
	n.mu.Lock()
	open := n.network
	n.network, n.broken, n.closed = nil, errClosed, true
	n.mu.Unlock()
	n.die()
	if open == nil {
		return nil
	}
	return open.Close()
}

// Connected tells whether sandboxes have addresses in the network of a directory.
func Connected(dir string) (bool, error) {
	owners, err := network.Owners(dir)
	return len(owners) > 0, err
}

// Remove takes away all that the network of a directory has on this machine, when no sandbox is left.
func Remove(ctx context.Context, cfg Config) error {
	return network.Remove(ctx, cfg.namespace(nil))
}
