package nodens

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/network/conntrack"
	"monoplane.dev/nodeagent/network/nodens/internal/helper"
	"monoplane.dev/nodeagent/network/nodens/internal/wire"
)

// Namespace is an open node namespace. Its methods may be called concurrently.
type Namespace struct {
	cfg     Config
	helper  *remote
	passage passage
	// segment is the most of a connection that pods hand on in one piece, in bytes, if their links can.
	segment int
	machine *machineTable // Nil without root.
	inside  *insideTable

	// verifying admits one of Open, Verify and Close at a time to what follows it.
	verifying sync.Mutex
	setup     *wire.Setup
	inode     uint64  // The network namespace's.
	egress    *egress // Nil as long as the kernel has been the way out.
	seen      seen

	// way guards the fields Egress, Why and Services of the status; the others stay as they were when it was opened.
	way    sync.Mutex
	status Status

	mu    sync.Mutex
	ports map[string]hostPorts // By sandbox.

	stop context.CancelFunc // Ends what this process does for the namespace.
	work context.Context
}

// Open makes the node namespace, or finds it again and repairs it.
func Open(ctx context.Context, cfg Config) (_ *Namespace, err error) {
	if err := complete(&cfg); err != nil {
		return nil, err
	}
	dir, lock, err := lockDir(ctx, cfg.Dir)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	n := &Namespace{cfg: cfg, helper: &remote{dir: dir}, ports: map[string]hostPorts{},
		passage: newPassage()}
	n.inside = newInsideTable(n)
	n.work, n.stop = context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			_ = n.Close()
		}
	}()
	switch err := inUse(cfg.PodRanges, hostLink(cfg.Cluster)); {
	case errors.Is(err, ErrHides):
		cfg.Log.Warn("some of the machine's network cannot be reached", "error", err)
	case err != nil:
		return nil, err
	}
	hello, isNew, err := n.helper.find(ctx, &n.cfg, lock)
	if err != nil {
		return nil, err
	}
	n.inside.adopt()
	if !n.cfg.Rootless {
		clearRemains(&n.cfg)
		n.machine = newMachineTable(&n.cfg)
		n.machine.adopt()
	}
	if err := n.plan(ctx, hello); err != nil {
		return nil, err
	}
	if err := n.setUp(ctx); err != nil {
		if isNew {
			err = errors.Join(err, n.helper.end(context.WithoutCancel(ctx)))
		}
		if n.cfg.Rootless {
			err = fmt.Errorf("%w%s", err, WhyForbidden())
		}
		return nil, err
	}
	return n, nil
}

// plan says how the namespace should be, and makes what it needs on this side.
func (n *Namespace) plan(ctx context.Context, hello wire.Hello) error {
	setup := &wire.Setup{PodRanges: n.cfg.PodRanges, ServiceRanges: n.cfg.ServiceRanges}
	n.inode, n.setup = hello.Namespace, setup
	n.status = Status{Rootless: n.cfg.Rootless, IPv6: hello.IPv6, Egress: EgressMasquerade}
	var err error
	if n.status.MTU, err = defaultMTU(); err != nil {
		return err
	}
	if n.segment, err = segment(&n.cfg); err != nil {
		return err
	}
	setup.MTU, setup.Segment = n.status.MTU, n.segment
	if n.cfg.Rootless {
		return n.leaveBy(ctx, "without root, the kernel forwards nothing out of the pods' namespaces")
	}
	if err := n.join(ctx); err != nil {
		return err
	}
	if why := n.status.Why; why != "" {
		n.cfg.Log.Info("pods reach out through this process", "why", why)
	}
	return nil
}

// join makes the machine's side of the link to the namespace, and has pods leave by what is possible.
func (n *Namespace) join(ctx context.Context) error {
	if err := n.reach(ctx); err != nil {
		return err
	}
	var err error
	if n.seen.others, err = othersRules(&n.cfg); err != nil {
		return err
	}
	why, err := n.against()
	if err != nil {
		return err
	}
	if err := n.leaveBy(ctx, why); err != nil {
		return err
	}
	return n.lead()
}

// reach makes the machine's side of the link to the namespace.
func (n *Namespace) reach(ctx context.Context) error {
	ns, err := n.helper.file(ctx, &wire.Request{Namespace: &wire.Namespace{Kind: wire.Node}})
	if err != nil {
		return err
	}
	defer ns.Close()
	n.setup.Uplink = uplinkName
	if n.setup.Machine, err = connect(&n.cfg, ns, n.inode, n.setup); err != nil {
		return err
	}
	if err := n.machine.replace(); err != nil {
		return err
	}
	services, err := reachesServices(&n.cfg)
	n.way.Lock()
	defer n.way.Unlock()
	n.status.Services = services
	return err
}

// leaveBy chooses the way out for the next setUp: the kernel, unless something is said against it. What serves the
// other way is kept when it has been needed once: connections that go through the process end there.
func (n *Namespace) leaveBy(ctx context.Context, why string) error {
	way := EgressMasquerade
	if why != "" {
		way = EgressProcess
		if n.egress == nil {
			var err error
			if n.egress, err = n.serveEgress(ctx, n.setup); err != nil {
				return err
			}
		}
	}
	n.setup.Process = way == EgressProcess
	n.way.Lock()
	defer n.way.Unlock()
	n.status.Egress, n.status.Why = way, why
	return nil
}

// setUp has the helper make the namespace as it should be, and remembers what has come of it.
func (n *Namespace) setUp(ctx context.Context) error {
	n.seen.inside = ruleset{} // So that the next Verify does it again where this fails.
	if _, _, err := n.helper.call(ctx, &wire.Request{Setup: n.setup}); err != nil {
		return fmt.Errorf("the node namespace cannot be set up: %w", err)
	}
	if err := n.inside.replace(); err != nil {
		return err
	}
	n.remember()
	return nil
}

// complete fills in what a configuration leaves out, or says what is wrong with it.
func complete(cfg *Config) error {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	cfg.Rootless = cfg.Rootless || os.Geteuid() != 0
	if cfg.Cluster == "" {
		return errors.New("the node namespace needs the name of a cluster")
	}
	if len(cfg.PodRanges) == 0 {
		return errors.New("the node namespace needs a range of addresses for pods")
	}
	for i, r := range cfg.PodRanges {
		switch {
		case !r.IsValid() || r != r.Masked():
			return fmt.Errorf("the pod range %s is none: bits behind the %d of its prefix are set", r, r.Bits())
		case r.Addr().BitLen()-r.Bits() < 3:
			return fmt.Errorf("the pod range %s is too small: the node itself takes three addresses", r)
		case i > 0 && (len(cfg.PodRanges) > 2 || r.Addr().Is4() == cfg.PodRanges[0].Addr().Is4()):
			return fmt.Errorf("the pod ranges %v must be one of each family at most", cfg.PodRanges)
		}
		for _, s := range cfg.ServiceRanges {
			if s.Overlaps(r) {
				return fmt.Errorf("the pod range %s and the service range %s overlap", r, s)
			}
		}
	}
	return nil
}

// lockDir opens the directory of the state, and waits until nobody else opens or removes its namespace, or ctx ends.
// The lock ends with its file, which is another than the directory's: the helper inherits that one, and would go on
// holding the lock.
func lockDir(ctx context.Context, path string) (dir, lock *os.File, err error) {
	if dir, err = os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0); err != nil {
		return nil, nil, fmt.Errorf("the directory of the pod network: %w", err)
	}
	info, err := dir.Stat()
	if err == nil {
		if perm := info.Mode().Perm(); perm&0o077 != 0 {
			err = fmt.Errorf("the directory %s of the pod network must be closed to others, but has the mode %o", path, perm)
		}
	}
	if err == nil {
		lock, err = openAt(dir, ".", unix.O_DIRECTORY)
	}
	if err == nil {
		err = flock(ctx, lock)
	}
	if err != nil {
		dir.Close()
		lock.Close()
		return nil, nil, err
	}
	return dir, lock, nil
}

// flock takes a lock as soon as nobody else has it. It asks again and again, since a call that waits for the lock
// could not be given up.
func flock(ctx context.Context, lock *os.File) error {
	for {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("another process opens or removes the pod network of the same directory: %w", context.Cause(ctx))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Status says how the network is.
func (n *Namespace) Status() Status {
	n.way.Lock()
	defer n.way.Unlock()
	return n.status
}

// NewPodNamespace makes a network namespace for a pod, with lo up, which the node namespace can be connected to:
// without root it belongs to the node's user namespace. It lasts as long as a process is in it or somebody holds the
// file or has mounted it.
func (n *Namespace) NewPodNamespace(ctx context.Context) (*os.File, error) {
	return n.helper.file(ctx, &wire.Request{Namespace: &wire.Namespace{Kind: wire.Pod}})
}

// UserNamespace returns the user namespace that the node namespace belongs to: without root, whoever enters namespaces
// of pods must have entered it, or one below it, before.
func (n *Namespace) UserNamespace(ctx context.Context) (*os.File, error) {
	return n.helper.file(ctx, &wire.Request{Namespace: &wire.Namespace{Kind: wire.User}})
}

// Attach connects the namespace of a sandbox. Repeated, it makes things as the configuration of the last call says.
// Without root, netns must belong to the node's user namespace or one below it: see NewPodNamespace. A sandbox has
// addresses that no other has; who asks for those of another gets them from it.
func (n *Namespace) Attach(ctx context.Context, sandbox string, netns *os.File, cfg AttachConfig) (Attachment, error) {
	if len(cfg.Addresses) == 0 {
		return Attachment{}, fmt.Errorf("the sandbox %s is to be connected without an address", sandbox)
	}
	for _, a := range cfg.Addresses {
		if !n.inPodRange(a) {
			return Attachment{}, fmt.Errorf("the address %s of the sandbox %s is not of the node's pod ranges %v", a, sandbox,
				n.cfg.PodRanges)
		}
	}
	mtu := cmp.Or(cfg.MTU, n.status.MTU)
	_, _, err := n.helper.call(ctx, &wire.Request{Attach: &wire.Attach{Sandbox: sandbox, PodRanges: n.cfg.PodRanges,
		Addresses: cfg.Addresses, MTU: mtu, Segment: n.segment, Inside: insideOf(&n.cfg, mtu, n.segment),
		Ingress: cfg.Ingress, Egress: cfg.Egress}}, netns)
	if err != nil {
		return Attachment{}, fmt.Errorf("the sandbox cannot be connected: %w", err)
	}
	if err := n.serveHostPorts(sandbox, cfg); err != nil {
		return Attachment{}, err
	}
	return Attachment{Link: helper.LinkName(sandbox), Addresses: cfg.Addresses}, nil
}

// Detach takes away what Attach has made, and has connection tracking forget what went to and from the addresses that
// the sandbox had: who has them next must not get it, past its policies. It may be called for a sandbox that is not
// connected, or no more.
func (n *Namespace) Detach(ctx context.Context, sandbox string, had ...netip.Addr) error {
	if err := n.closeHostPorts(sandbox); err != nil {
		return fmt.Errorf("the ports of the sandbox %s do not end: %w", sandbox, err)
	}
	_, _, err := n.helper.call(ctx, &wire.Request{Detach: &wire.Detach{Sandbox: sandbox}})
	if err != nil && !errors.Is(err, errNoHelper) {
		return fmt.Errorf("the sandbox %s cannot be disconnected: %w", sandbox, err)
	}
	if err := n.forgetFlows(had); err != nil {
		return fmt.Errorf("what the sandbox %s was connected to goes on: %w", sandbox, err)
	}
	return nil
}

// forgetFlows has connection tracking forget what goes to and from addresses, in the namespace and on the machine.
func (n *Namespace) forgetFlows(of []netip.Addr) error {
	if len(of) == 0 {
		return nil
	}
	families := map[byte]bool{}
	for _, a := range of {
		families[familyOf(a)] = true
	}
	isOf := func(f conntrack.Flow) bool {
		return slices.ContainsFunc([]netip.AddrPort{f.Orig.Src, f.Orig.Dst, f.Reply.Src, f.Reply.Dst},
			func(a netip.AddrPort) bool { return slices.Contains(of, a.Addr()) })
	}
	if err := forget(n.Netfilter, families, isOf); err != nil && !errors.Is(err, errNoHelper) { // No namespace, no flows.
		return err
	}
	if n.machine == nil {
		return nil
	}
	return forget(dialNetfilter, families, isOf)
}

// Attached returns the sandboxes that are connected, and their addresses, as the kernel has them.
func (n *Namespace) Attached(ctx context.Context) (map[string]Attachment, error) {
	reply, _, err := n.helper.call(ctx, &wire.Request{Attached: &wire.Attached{}})
	if err != nil {
		return nil, fmt.Errorf("what the node namespace is connected to: %w", err)
	}
	found := make(map[string]Attachment, len(reply.Attached))
	for sandbox, a := range reply.Attached {
		found[sandbox] = Attachment(a)
	}
	return found, nil
}

// AddAddresses has the node namespace take addresses for its own, such as the cluster IP of DNS, so that it can
// listen on them; those that it does not have. RemoveAddresses gives them back.
func (n *Namespace) AddAddresses(ctx context.Context, addresses ...netip.Addr) error {
	_, _, err := n.helper.call(ctx, &wire.Request{Addresses: &wire.Addresses{Add: addresses}})
	return err
}

// RemoveAddresses undoes AddAddresses.
func (n *Namespace) RemoveAddresses(ctx context.Context, addresses ...netip.Addr) error {
	_, _, err := n.helper.call(ctx, &wire.Request{Addresses: &wire.Addresses{Remove: addresses}})
	return err
}

// Alive returns an error if the namespace is no more, because its helper and the helper's spare were killed both. It
// has to be opened again then, and what was connected has to be attached again.
func (n *Namespace) Alive(ctx context.Context) error {
	_, _, err := n.helper.call(ctx, &wire.Request{})
	return err
}

// Close ends what this process does for the namespace: host ports, and egress through the process. The namespace
// stays, for the next Open.
func (n *Namespace) Close() error {
	n.stop() // What is verified ends: it waits for the helper with this context.
	n.verifying.Lock()
	defer n.verifying.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, t := range n.portTables(true) {
		t.close() // Its rules stay as they are.
	}
	for _, had := range n.ports {
		for _, p := range had.served {
			p.stopServing()
		}
	}
	clear(n.ports)
	if n.egress != nil {
		n.egress.close()
	}
	return n.helper.dir.Close()
}

// Remove ends the helper, and with it the namespace, and takes away what the machine has of it. It may be called for a
// namespace of which only parts are left. Of the configuration, Cluster, Dir and Rootless count.
func Remove(ctx context.Context, cfg Config) error {
	dir, lock, err := lockDir(ctx, cfg.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return disconnect(cfg.Cluster)
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	defer dir.Close()
	r := &remote{dir: dir}
	if err := r.end(ctx); err != nil {
		return err
	}
	for _, name := range []string{helper.Socket, logFile} {
		if err := unix.Unlinkat(int(dir.Fd()), name, 0); err != nil && !errors.Is(err, unix.ENOENT) &&
			!errors.Is(err, unix.EROFS) { // Where they stay, nobody listens.
			return fmt.Errorf("%s of the pod network: %w", name, err)
		}
	}
	return disconnect(cfg.Cluster)
}

func (n *Namespace) inPodRange(a netip.Addr) bool { return inRange(&n.cfg, a) }

// inRange tells whether an address is one of the pods' ranges.
func inRange(cfg *Config, a netip.Addr) bool {
	return slices.ContainsFunc(cfg.PodRanges, func(r netip.Prefix) bool { return r.Contains(a) })
}

// hash is what names of the machine carry of the cluster's.
func hash(cluster string) string {
	sum := sha256.Sum256([]byte(cluster))
	return hex.EncodeToString(sum[:5])
}
