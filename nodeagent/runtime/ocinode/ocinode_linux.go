package ocinode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/internal/userids"
	"monoplane.dev/nodeagent/diskuse"
	"monoplane.dev/nodeagent/images"
	"monoplane.dev/nodeagent/images/cri"
	"monoplane.dev/nodeagent/network"
	"monoplane.dev/nodeagent/network/cni"
	"monoplane.dev/nodeagent/network/enforcer"
	"monoplane.dev/nodeagent/network/nodens"
	"monoplane.dev/nodeagent/network/podnet"
	"monoplane.dev/nodeagent/runtime/connect"
	"monoplane.dev/nodeagent/runtime/host"
	"monoplane.dev/nodeagent/runtime/oci"
	"monoplane.dev/nodeagent/runtime/oci/helper"
	"monoplane.dev/nodeagent/subids"
	"monoplane.dev/nodeagent/volumes/ownership"
)

// Runtime is the runtime of one node. It is a monoplane.Runtime.
type Runtime struct {
	cfg Config

	mu      sync.Mutex
	network *podnet.Network // nil where pods use the machine's, or one of CNI
	// policies isolates pods of the network.
	policies *enforcer.Enforcer
}

// New returns a runtime that does nothing before Open.
func New(cfg Config) *Runtime { return &Runtime{cfg: cfg} }

// Check returns why images cannot be run on this machine by this user; nil if they can.
func Check() error {
	err := helper.Check()
	if err != nil && os.Geteuid() != 0 {
		err = fmt.Errorf("%w%s", err, nodens.WhyForbidden())
	}
	return err
}

// InUse says what of this machine keeps a range from being used for the addresses of a new cluster's pods, or speaks
// against it (ErrHides); nil if nothing does.
func InUse(podRange netip.Prefix) error { return nodens.InUse(podRange) }

// ErrHides is the error of InUse for a range that can be had.
var ErrHides = nodens.ErrHides

// Simulated reports that pods have processes.
func (*Runtime) Simulated() bool { return false }

func (*Runtime) rootless() bool { return os.Geteuid() != 0 }

// Remove removes a directory with what users of containers have left in it, who without root have ids that only a
// process in a user namespace with these may remove. It is what images.Config.Remove is for, too.
func (*Runtime) Remove(ctx context.Context, dir string) error { return Remove(ctx, dir) }

// IDs are those of the pods of a user who is not root, for images.Config.IDs. Why there is only one is said when pods
// run.
func IDs() userids.Maps {
	ids, _ := userids.Own()
	return ids
}

// Remove is the method of Runtime, for those who have none.
func Remove(ctx context.Context, dir string) error {
	ids, why := userids.Own() // With one id, what its user has closed to itself can be removed.
	program, err := helper.Open()
	if err != nil {
		return err
	}
	defer program.Close()
	if err = helper.Remove(ctx, program, ids, dir); err != nil && why != "" {
		err = fmt.Errorf("%w: what is there may belong to other users (%s)", err, why)
	}
	return err
}

// Give gives a volume to a group as the pods of a user who is not root see it. With one id there is root's alone, and
// ownership.ErrNoGroup for all others.
func (*Runtime) Give(ctx context.Context, dir string, group int64, forReading bool, policy string) error {
	ids, why := userids.Own()
	if why == "" {
		err := subids.Give(ctx, ids, dir, group, forReading, policy)
		switch {
		case errors.Is(err, unix.EINVAL):
			return fmt.Errorf("the group %d does not exist in pods, which have those of /etc/subgid: %w", group, err)
		case !errors.Is(err, subids.ErrIDs):
			return err
		}
		why = err.Error()
	}
	if group == 0 {
		return ownership.Give(dir, int64(os.Getegid()), forReading, policy)
	}
	return fmt.Errorf("%w, which have only root's: %s", ownership.ErrNoGroup, why)
}

// Measure measures what users of containers have stored, who without root can close it to this process.
func (*Runtime) Measure(ctx context.Context, dir string) (diskuse.Size, error) {
	ids, _ := userids.Own()
	return subids.Measure(ctx, ids, dir)
}

// unprivilegedPorts holds the first port that takes no privileges.
const unprivilegedPorts = "/proc/sys/net/ipv4/ip_unprivileged_port_start"

// Limits says what is impossible for pods of a user who is not root; see docs/network.md and docs/images.md.
func (r *Runtime) Limits() []string {
	if !r.rootless() {
		return nil
	}
	var out []string
	if _, why := userids.Own(); why != "" {
		out = append(out, "Pods have no user but root, because "+why+
			": containers of other users fail, and all files of images belong to root.")
	}
	if !r.HasNetwork() {
		return out
	}
	out = append(out, "Pods cannot ping what is outside, nor send it anything but TCP and UDP.",
		"Programs of the machine cannot reach addresses of pods and Services.")
	if first, err := os.ReadFile(unprivilegedPorts); err == nil && strings.TrimSpace(string(first)) != "0" {
		out = append(out, "Ports of the machine below "+strings.TrimSpace(string(first))+" cannot be had.")
	}
	return append(out, "How many connections are tracked (nf_conntrack_max) is the machine's setting.")
}

// HasNetwork tells whether pods get the network of this package.
func (r *Runtime) HasNetwork() bool { return !r.cfg.HostNetwork && r.cfg.CNI == nil }

// CNI says what connects pods in its place; nil if nothing does.
func (r *Runtime) CNI() *CNI { return r.cfg.CNI }

// NetworkDir is where the network of a node whose directory is given has its state.
func NetworkDir(dir string) string { return filepath.Join(dir, "network") }

// cniDir is where cni.Network has its own.
func cniDir(dir string) string { return filepath.Join(dir, "cni") }

// Open makes the runtime of a node in dir. The returned function closes it; pods and their network go on.
func (r *Runtime) Open(
	ctx context.Context, _, dir string, logger *slog.Logger,
) (grpc.ClientConnInterface, func() error, error) {
	if err := r.checkNetwork(dir); err != nil {
		return nil, nil, err
	}
	program := new(helper.Program)
	stored := r.cfg.Images
	stored.Log, stored.Overlay = logger, helper.Overlay
	store, err := images.Open(stored)
	if err != nil {
		return nil, nil, err
	}
	with := &host.OCI{Helper: program.File, Images: store, Service: cri.New(store, nil)}
	if r.rootless() {
		if _, why := userids.Own(); why != "" {
			logger.Info("pods have one user, which is root in them", "reason", why)
		}
	}
	closeNetwork := func() error { return nil }
	if r.HasNetwork() {
		cfg := r.networkConfig(dir, logger)
		cfg.Policies = enforcer.New(logger)
		n := podnet.New(cfg)
		r.mu.Lock()
		r.network, r.policies = n, cfg.Policies
		r.mu.Unlock()
		with.Network, closeNetwork = n, n.Close
	}
	if r.cfg.CNI != nil {
		n, err := cni.New(r.cniConfig(dir, logger))
		if err != nil {
			return nil, nil, errors.Join(err, program.Close(), store.Close())
		}
		with.Network, closeNetwork = n, n.Close
	}
	conn, closeRuntime, err := connect.Host(host.Config{Dir: filepath.Join(dir, "pods"), Logger: logger, OCI: with})
	if err != nil {
		return nil, nil, errors.Join(err, closeNetwork(), program.Close(), store.Close())
	}
	closeAll := func() error {
		return errors.Join(closeRuntime(), closeNetwork(), program.Close(), store.Close())
	}
	if r.cfg.CNI != nil {
		// A node may have no range of addresses, so that nobody else tells the network which sandboxes there are.
		_, err := runtimeapi.NewRuntimeServiceClient(conn).UpdateRuntimeConfig(ctx,
			&runtimeapi.UpdateRuntimeConfigRequest{})
		if err != nil {
			return nil, nil, errors.Join(err, closeAll())
		}
	}
	return conn, closeAll, nil
}

// checkNetwork refuses a node whose pods another network has connected: they would stay without a way to the others,
// and what they have of that network would never be given back.
func (r *Runtime) checkNetwork(dir string) error {
	if r.cfg.CNI != nil && (r.rootless() || r.cfg.HostNetwork) {
		return errors.New("CNI connects pods as root only, and none that are on the machine's network")
	}
	others, remedy := podnet.Connected, "without CNI"
	at := NetworkDir(dir)
	if r.cfg.CNI == nil {
		others, remedy, at = cni.Connected, "with the same CNI", cniDir(dir)
	}
	connected, err := others(at)
	if err == nil && connected {
		err = fmt.Errorf("another network has connected pods of this node (%s): start it %s as before, stop the pods "+
			"(monoplane down), and then start it so", at, remedy)
	}
	return err
}

func (r *Runtime) cniConfig(dir string, logger *slog.Logger) cni.Config {
	return cni.Config{ConfDir: r.cfg.CNI.ConfDir, BinDirs: r.cfg.CNI.BinDirs, Dir: cniDir(dir), Log: logger}
}

func (r *Runtime) networkConfig(dir string, logger *slog.Logger) podnet.Config {
	var ids userids.Maps
	if r.rootless() {
		ids, _ = userids.Own()
	}
	return podnet.Config{IDs: ids, Cluster: dir, Dir: NetworkDir(dir), ServiceRanges: r.cfg.ServiceRanges, Log: logger}
}

// ServeNetwork carries traffic to Services, answers names and enforces NetworkPolicies until ctx ends. It returns at
// once where pods use the machine's network.
func (r *Runtime) ServeNetwork(ctx context.Context, node network.Node, logger *slog.Logger) error {
	r.mu.Lock()
	n, policies := r.network, r.policies
	r.mu.Unlock()
	if n == nil {
		return nil
	}
	s := &session{node: node, log: logger}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return policies.Run(ctx, node.Client, node.Name) })
	group.Go(func() error { return n.Serve(ctx, s.run) })
	return group.Wait()
}

// DialPod connects to a pod or Service of the node, or to anything else: without root the machine has no way of its
// own to pods.
func (r *Runtime) DialPod(ctx context.Context, protocol, address string) (net.Conn, error) {
	r.mu.Lock()
	n := r.network
	r.mu.Unlock()
	if to, err := netip.ParseAddrPort(address); err == nil && n != nil {
		conn, err := n.DialFrom(ctx, protocol, to)
		if !errors.Is(err, podnet.ErrNotHere) {
			return conn, err
		}
	}
	return new(net.Dialer).DialContext(ctx, protocol, address)
}

// MachineReachesServices tells whether programs of the machine itself reach Services: not without root, nor where
// another cluster has the same addresses.
func (r *Runtime) MachineReachesServices() bool {
	r.mu.Lock()
	n := r.network
	r.mu.Unlock()
	return n != nil && n.MachineReachesServices()
}

// NotForwarded says why pods reach out through this process; empty where the kernel forwards what they send, and while
// it is not known.
func (r *Runtime) NotForwarded() string {
	r.mu.Lock()
	n := r.network
	r.mu.Unlock()
	if n == nil {
		return ""
	}
	return n.NotForwarded()
}

// Down takes away what the network of a node has on this machine, when no pod is left.
func (r *Runtime) Down(ctx context.Context, dir string, logger *slog.Logger) error {
	if r.cfg.CNI != nil {
		return cni.Remove(ctx, r.cniConfig(dir, logger))
	}
	if !r.HasNetwork() {
		return nil
	}
	return podnet.Remove(ctx, r.networkConfig(dir, logger))
}

var _ oci.Network = (*podnet.Network)(nil)
