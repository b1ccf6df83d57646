package cni

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
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"monoplane.dev/internal/datadir"
	"monoplane.dev/nodeagent/runtime/oci"
)

// Config is what New takes.
type Config struct {
	// ConfDir is where the configuration is, such as /etc/cni/net.d. It need not exist yet.
	ConfDir string
	// BinDirs are where the plugins are, such as /opt/cni/bin; the first that has one counts.
	BinDirs []string
	// Dir holds what plugins were asked and have answered. It is made with mode 0700 where it is missing.
	Dir string
	// NamespaceDir is where network namespaces are mounted, DefaultNamespaceDir if it is empty. It is made where it is
	// missing.
	NamespaceDir string
	// Patience is how long plugins may take to add or delete a sandbox, 2 min if it is 0.
	Patience time.Duration
	// Log takes what is done again, and what is ignored. Required.
	Log *slog.Logger
}

// DefaultNamespaceDir is where programs look for network namespaces.
const DefaultNamespaceDir = "/run/netns"

// What else is waited for, and how long.
const (
	defaultPatience = 2 * time.Minute
	collectTime     = 30 * time.Second // for a collection of what is nobody's
	statusTime      = 10 * time.Second // for plugins to say whether they are ready
	readyTime       = 2 * time.Second  // for who asks whether they are: less than a node's agent waits
	firstPause      = time.Second      // between two deletions, and then twice as long
	longestPause    = time.Minute
	mostAtOnce      = 4 // sandboxes that are deleted again at the same time
)

var (
	errUntold  = errors.New("it is not known yet which pods there are")
	errBusy    = errors.New("the plugins of CNI have not answered yet whether they are ready")
	errClosed  = errors.New("the network is closed")
	errDamaged = errors.New("it makes no sense")
)

// Network connects the pods of one node. It is an oci.Network; its methods may be called concurrently.
type Network struct {
	cfg     Config
	plugins *libcni.CNIConfig
	records records
	slots   chan struct{} // One for each deletion that is repeated at the same time.
	// collected is closed when what is nobody's has been given back, as far as plugins can: before that, no sandbox is
	// added, which they would take for nobody's.
	collected chan struct{}

	mu sync.Mutex
	// sandboxes are those that have a record, or are being asked about.
	sandboxes map[string]*sandbox
	// told says that Configure has said which sandboxes there are.
	told   bool
	ranges []netip.Prefix
	// lost are those that were not connected by this network.
	lost       map[string]bool
	collecting bool
	// checked is the configuration whose plugins were found to be there and of the right versions.
	checked string
	asked   *question
	closed  bool

	work sync.WaitGroup  // All calls, and all that goes on without one.
	life context.Context // Ends with Close.
	die  context.CancelFunc
}

// sandbox is one about which plugins can be asked.
type sandbox struct {
	turn chan struct{} // Has who asks.
	// again says that its deletion is being repeated. Guarded by Network.mu.
	again bool
}

// question asks whether plugins are ready. Err is what they say once done is closed.
type question struct {
	done chan struct{}
	err  error
}

// New returns a network that connects nothing before Configure.
func New(cfg Config) (*Network, error) {
	if cfg.NamespaceDir == "" {
		cfg.NamespaceDir = DefaultNamespaceDir
	}
	if cfg.Patience == 0 {
		cfg.Patience = defaultPatience
	}
	dir, err := datadir.Make(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("the directory of CNI: %w", err)
	}
	kept, err := dir.Make("sandboxes")
	if err != nil {
		return nil, fmt.Errorf("the directory of CNI: %w", err)
	}
	if err := datadir.Sweep(kept.Path()); err != nil {
		return nil, fmt.Errorf("the directory of CNI: %w", err)
	}
	life, die := context.WithCancel(context.Background())
	n := &Network{
		cfg: cfg, records: records{kept}, slots: make(chan struct{}, mostAtOnce), collected: make(chan struct{}),
		plugins:   libcni.NewCNIConfigWithCacheDir(cfg.BinDirs, filepath.Join(dir.Path(), "cache"), &runner{}),
		sandboxes: map[string]*sandbox{}, lost: map[string]bool{}, life: life, die: die,
	}
	ids, err := n.records.ids()
	if err != nil {
		die()
		return nil, fmt.Errorf("the directory of CNI: %w", err)
	}
	for _, id := range ids {
		n.sandboxes[id] = newSandbox()
	}
	return n, nil
}

func newSandbox() *sandbox { return &sandbox{turn: make(chan struct{}, 1)} }

// Connected tells whether the directory of a Network has sandboxes that plugins have been asked to add.
func Connected(dir string) (bool, error) {
	kept, err := datadir.Open(filepath.Join(dir, "sandboxes"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	ids, err := records{kept}.ids()
	return len(ids) > 0, err
}

// begin counts a call, whose context ends with the network, too. The caller calls end.
func (n *Network) begin(ctx context.Context) (_ context.Context, end func(), err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, nil, errClosed
	}
	n.work.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(n.life, func() { cancel(errClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		n.work.Done()
	}, nil
}

// startLocked runs f beside the caller, unless the network is closed.
func (n *Network) startLocked(f func()) {
	if !n.closed {
		n.work.Go(f)
	}
}

// take waits for the turn to ask about a sandbox, which the returned function gives back.
func (n *Network) take(ctx context.Context, id string) (give func(), err error) {
	n.mu.Lock()
	sb := n.sandboxes[id]
	if sb == nil {
		sb = newSandbox()
		n.sandboxes[id] = sb
	}
	n.mu.Unlock()
	select {
	case sb.turn <- struct{}{}:
		return func() { <-sb.turn }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("the plugins of CNI are busy with the sandbox %s: %w", id, context.Cause(ctx))
	}
}

// Configure implements oci.Network. What plugins were asked to add for others than the existing sandboxes is deleted,
// meanwhile. The ranges, if any, are handed to plugins that ask for them.
func (n *Network) Configure(_ context.Context, ranges []netip.Prefix, existing []oci.Sandbox) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ranges = slices.Clone(ranges)
	if n.told {
		return nil
	}
	n.told = true
	exists := map[string]bool{}
	for _, s := range existing {
		exists[s.ID] = true
		if n.sandboxes[s.ID] == nil {
			n.lost[s.ID] = true
			continue
		}
		if n.kept(s.ID) == "" {
			if _, err := n.keep(s.ID, s.Namespace); err != nil {
				n.cfg.Log.Warn("plugins will be asked to delete a sandbox without its network namespace", "error", err)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(n.sandboxes)) {
		if !exists[id] {
			n.againLocked(id)
		}
	}
	return nil
}

// collect asks plugins, once, to give back what belongs to no sandbox that has a record.
func (n *Network) collect(list *libcni.NetworkConfigList) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.collecting || !n.told {
		return
	}
	n.collecting = true
	valid := []types.GCAttachment{}
	for _, id := range slices.Sorted(maps.Keys(n.sandboxes)) {
		valid = append(valid, types.GCAttachment{ContainerID: id, IfName: ifName})
	}
	n.startLocked(func() {
		defer close(n.collected)
		ctx, cancel := context.WithTimeout(n.life, collectTime)
		defer cancel()
		if err := n.plugins.GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: valid}); err != nil {
			n.cfg.Log.Info("the plugins of CNI collect nothing", "network", list.Name, "error", err)
		}
	})
}

// Ready returns why pods cannot be connected: there is no configuration, or the plugins say so.
func (n *Network) Ready(ctx context.Context) error {
	n.mu.Lock()
	if n.closed || !n.told {
		defer n.mu.Unlock()
		if n.closed {
			return errClosed
		}
		return errUntold
	}
	q := n.asked
	if q == nil {
		q = &question{done: make(chan struct{})}
		n.asked = q
		n.startLocked(func() {
			ctx, cancel := context.WithTimeout(n.life, statusTime)
			defer cancel()
			q.err = n.check(ctx)
			n.mu.Lock()
			n.asked = nil
			n.mu.Unlock()
			close(q.done)
		})
	}
	n.mu.Unlock()
	patience := time.NewTimer(readyTime)
	defer patience.Stop()
	select {
	case <-q.done:
		return q.err
	case <-patience.C:
		return errBusy
	case <-ctx.Done():
		return errBusy
	}
}

// check finds the configuration, and asks its plugins whether they are ready.
func (n *Network) check(ctx context.Context) error {
	list, err := load(n.cfg.ConfDir)
	if err != nil {
		return err
	}
	n.collect(list)
	n.mu.Lock()
	isNew := n.checked != string(list.Bytes)
	n.mu.Unlock()
	if isNew {
		if _, err := n.plugins.ValidateNetworkList(ctx, list); err != nil {
			return fmt.Errorf("the plugins of the network %s of CNI: %w", list.Name, err)
		}
		n.mu.Lock()
		n.checked = string(list.Bytes)
		n.mu.Unlock()
	}
	if err := n.plugins.GetStatusNetworkList(ctx, list); err != nil {
		return fmt.Errorf("the network %s of CNI is not ready: %w", list.Name, err)
	}
	return nil
}

// Attach implements oci.Network. After an error plugins may have added something, which Detach has deleted.
func (n *Network) Attach(ctx context.Context, s oci.Sandbox) ([]netip.Addr, error) {
	ctx, end, err := n.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Patience)
	defer cancel()
	list, err := load(n.cfg.ConfDir)
	if err != nil {
		return nil, err
	}
	n.collect(list)
	select {
	case <-n.collected:
	case <-ctx.Done():
		return nil, fmt.Errorf("the network %s of CNI: what is nobody's is being collected: %w", list.Name,
			context.Cause(ctx))
	}
	give, err := n.take(ctx, s.ID)
	if err != nil {
		return nil, err
	}
	defer give()
	if have, err := n.has(ctx, s.ID); len(have) > 0 || err != nil {
		return have, err
	}
	return n.add(ctx, list, s)
}

// has returns the addresses that a sandbox has. Where its addition has not come to an end, it is deleted, and has
// none. The caller has its turn.
func (n *Network) has(ctx context.Context, id string) ([]netip.Addr, error) {
	r, list, err := n.records.read(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		namespace := n.kept(id)
		answer, err := n.plugins.GetNetworkListCachedResult(list, r.runtimeConf(id, namespace))
		if err == nil && answer != nil && namespace != "" {
			return addresses(answer)
		}
	}
	return nil, n.del(ctx, id)
}

// add has plugins add a sandbox. The caller has its turn.
func (n *Network) add(ctx context.Context, list *libcni.NetworkConfigList, s oci.Sandbox) ([]netip.Addr, error) {
	n.mu.Lock()
	ranges := n.ranges
	n.mu.Unlock()
	r, err := request(list, s, ranges)
	if err != nil {
		return nil, err
	}
	for _, capability := range []string{portMappings, bandwidth} {
		if _, wants := r.Capabilities[capability]; wants && !asksFor(list, capability) {
			n.cfg.Log.Warn("no plugin of the network of CNI asks for what a pod wants", "network", list.Name,
				"capability", capability, "pod", s.Config.GetMetadata().GetName(), "sandbox", s.ID)
		}
	}
	for _, p := range list.Plugins {
		// One that is not there can neither add nor, later, delete.
		if _, err := new(runner).FindInPath(p.Network.Type, n.cfg.BinDirs); err != nil {
			return nil, fmt.Errorf("the network %s of CNI: %w", list.Name, err)
		}
	}
	if err := n.records.save(s.ID, r); err != nil {
		return nil, err
	}
	namespace, err := n.keep(s.ID, s.Namespace)
	if err != nil {
		return nil, err
	}
	answer, err := n.plugins.AddNetworkList(ctx, list, r.runtimeConf(s.ID, namespace))
	if err != nil {
		return nil, fmt.Errorf("the network %s of CNI: %w", list.Name, err)
	}
	return addresses(answer)
}

// Detach implements oci.Network. When plugins fail, it goes on after the error, until they have succeeded.
func (n *Network) Detach(ctx context.Context, sandboxID string) error {
	ctx, end, err := n.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	n.mu.Lock()
	delete(n.lost, sandboxID)
	isKnown := n.sandboxes[sandboxID] != nil
	n.mu.Unlock()
	if !isKnown {
		return nil
	}
	if err := n.detach(ctx, sandboxID); err != nil {
		n.mu.Lock()
		n.againLocked(sandboxID)
		n.mu.Unlock()
		return fmt.Errorf("%w; the plugins are asked again", err)
	}
	return nil
}

// detach has plugins delete a sandbox, and forgets it.
func (n *Network) detach(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Patience)
	defer cancel()
	give, err := n.take(ctx, id)
	if err != nil {
		return err
	}
	defer give()
	if err := n.del(ctx, id); err != nil {
		return err
	}
	n.mu.Lock()
	delete(n.sandboxes, id)
	n.mu.Unlock()
	return nil
}

// del has plugins delete a sandbox, if it has a record, which it removes. The caller has its turn.
func (n *Network) del(ctx context.Context, id string) error {
	r, list, err := n.records.read(id)
	switch {
	case errors.Is(err, errDamaged):
		n.cfg.Log.Error("plugins cannot be asked to delete a sandbox: what they have been asked is damaged",
			"sandbox", id, "error", err)
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		if err := n.plugins.DelNetworkList(ctx, list, r.runtimeConf(id, n.kept(id))); err != nil {
			return fmt.Errorf("the network %s of CNI: %w", list.Name, err)
		}
	}
	if err := n.release(id); err != nil {
		return err
	}
	return n.records.Remove(id + recordExtension)
}

// againLocked has a sandbox deleted as often as it takes.
func (n *Network) againLocked(id string) {
	sb := n.sandboxes[id]
	if sb == nil || sb.again {
		return
	}
	sb.again = true
	n.startLocked(func() {
		for pause := firstPause; ; pause = min(2*pause, longestPause) {
			err := n.attempt(id)
			if err == nil || n.life.Err() != nil {
				return
			}
			n.cfg.Log.Warn("the plugins of CNI cannot delete a sandbox; they are asked again", "sandbox", id,
				"after", pause, "error", err)
			select {
			case <-time.After(pause):
			case <-n.life.Done():
				return
			}
		}
	})
}

// attempt is detach when there are not too many others.
func (n *Network) attempt(id string) error {
	select {
	case n.slots <- struct{}{}:
	case <-n.life.Done():
		return errClosed
	}
	defer func() { <-n.slots }()
	return n.detach(n.life, id)
}

// Users implements oci.Network: this network is root's.
func (*Network) Users(context.Context) (*os.File, error) { return nil, nil }

// Dial implements oci.Network.
func (n *Network) Dial(
	ctx context.Context, s oci.Sandbox, protocol string, address netip.AddrPort,
) (net.Conn, error) {
	conn, err := dialInside(ctx, s.Namespace, protocol, address)
	if err != nil {
		return nil, fmt.Errorf("from the sandbox %s: %w", s.ID, err)
	}
	return conn, nil
}

// Lost implements oci.Network: those are lost that another network has connected.
func (n *Network) Lost() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.lost))
}

// Close ends what this process does for the network, and the plugins that it has started. What is connected stays so.
func (n *Network) Close() error {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.die()
	n.work.Wait()
	return nil
}

// Remove takes away all that the network of a directory has on this machine, when no sandbox is left.
func Remove(ctx context.Context, cfg Config) error {
	n, err := New(cfg)
	if err != nil {
		return err
	}
	var all error
	for _, id := range slices.Sorted(maps.Keys(n.sandboxes)) {
		all = errors.Join(all, n.detach(ctx, id))
	}
	if err := errors.Join(all, n.Close()); err != nil {
		return err
	}
	return os.RemoveAll(cfg.Dir)
}

var _ oci.Network = (*Network)(nil)
