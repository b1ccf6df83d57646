package monoplane

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"monoplane.dev/nodeagent/diskuse"
	"monoplane.dev/nodeagent/network"
	"monoplane.dev/nodeagent/runtime/connect"
	"monoplane.dev/nodeagent/runtime/fake"
	"monoplane.dev/nodeagent/runtime/host"
)

// Runtime runs pods behind the Container Runtime Interface. The ones of this package are HostRuntime, FakeRuntime and
// CRIRuntime; the one that runs images without a container engine is in package nodeagent/runtime/ocinode, for those
// who need it. Embedders may bring their own.
type Runtime interface {
	// Open connects to the runtime of one node. dir is the node's own directory. The returned function closes
	// the connection; pods go on.
	Open(ctx context.Context, node, dir string, logger *slog.Logger) (grpc.ClientConnInterface, func() error, error)
	// Simulated reports whether pods are without processes, so that one machine can be many nodes.
	Simulated() bool
}

// Networked is a Runtime whose pods can have a network of their own, in which it carries traffic to Services.
type Networked interface {
	Runtime
	// HasNetwork tells whether pods have a network of their own that the runtime serves so.
	HasNetwork() bool
	// ServeNetwork carries traffic to Services, answers names, and enforces NetworkPolicies, until ctx ends. It is called
	// once for a node, after Open.
	ServeNetwork(ctx context.Context, node network.Node, logger *slog.Logger) error
	// DialPod connects to a pod or Service of the node, or to anything else, as net.Dialer's DialContext does: not in
	// every network does the machine itself have a way to its pods.
	DialPod(ctx context.Context, network, address string) (net.Conn, error)
	// Down takes away what the network of the node in dir has on this machine. No pod is left then, and the connection of
	// Open is closed.
	Down(ctx context.Context, dir string, logger *slog.Logger) error
}

// Apart is a Networked whose Services the machine itself, and with it pods on its network, may not reach.
type Apart interface {
	Networked
	// MachineReachesServices tells whether it does now.
	MachineReachesServices() bool
}

// Remover is a Runtime whose containers can leave files that the process of the node may not remove itself.
type Remover interface {
	Runtime
	// Remove removes a directory with all that is in it. Links are not followed.
	Remove(ctx context.Context, dir string) error
}

// Giver is a Runtime whose pods see other groups than the process of the node.
type Giver interface {
	Runtime
	// Give gives a volume to a group as pods see it, as Kubernetes does with fsGroup; ownership.ErrNoGroup where there is
	// but one.
	Give(ctx context.Context, dir string, group int64, forReading bool, policy string) error
}

// Measurer is a Runtime whose containers can store what the process of the node may not read itself.
type Measurer interface {
	Runtime
	// Measure measures what there is in a directory, as diskuse.Of does.
	Measure(ctx context.Context, dir string) (diskuse.Size, error)
}

// Limited is a Runtime whose pods cannot do all that they could elsewhere.
type Limited interface {
	Runtime
	// Limits says what they cannot do, and why, a sentence each; nil where they can do everything.
	Limits() []string
}

// HostRuntime runs containers of image "host" as processes of this machine, without a container engine.
func HostRuntime() Runtime { return hostRuntime{} }

// FakeRuntime simulates: pods "run" without processes. For tests of controllers and for thousands of nodes.
func FakeRuntime() Runtime { return &fakeRuntime{} }

// UsedRuntime is FakeRuntime for people, who look at kubectl top, and have charts with init containers and Jobs. Where
// no annotation of a pod says otherwise, its containers use a little, 1m of cpu and 1Mi of memory each, of which
// FakeRuntime tells nothing, and those that are to end by themselves, init containers but for sidecars and those of a
// Job's pods, end with 0 so long after their start; with 0, as with FakeRuntime, they run on.
func UsedRuntime(finishAfter time.Duration) Runtime {
	return &fakeRuntime{cfg: fake.Config{CPU: "1m", Memory: "1Mi", FinishAfter: finishAfter}}
}

// CRIRuntime uses the runtime that listens on endpoint, such as "unix:///run/containerd/containerd.sock".
func CRIRuntime(endpoint string) Runtime { return criRuntime{endpoint} }

type hostRuntime struct{}

func (hostRuntime) Simulated() bool { return false }

func (hostRuntime) Open(
	_ context.Context, _, dir string, logger *slog.Logger,
) (grpc.ClientConnInterface, func() error, error) {
	return connect.Host(host.Config{Dir: filepath.Join(dir, "pods"), Logger: logger})
}

// fakeRuntime gives each node a range of pod addresses of its own.
type fakeRuntime struct {
	cfg    fake.Config
	opened atomic.Uint32
}

func (*fakeRuntime) Simulated() bool { return true }

func (f *fakeRuntime) Open(
	_ context.Context, node, dir string, logger *slog.Logger,
) (grpc.ClientConnInterface, func() error, error) {
	cfg := f.cfg
	cfg.PodCIDR = fakeRange(f.opened.Add(1) - 1)
	conn, closeRuntime := connect.Fake(node, dir, cfg, logger)
	return conn, closeRuntime, nil
}

// fakeRange is the n-th of the ranges 10.64.0.0/24, 10.64.1.0/24 and so on; after 16 384 they begin again.
func fakeRange(n uint32) netip.Prefix {
	n %= 1 << 14
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(64 + n>>8), byte(n), 0}), 24)
}

type criRuntime struct{ endpoint string }

func (criRuntime) Simulated() bool { return false }

func (r criRuntime) Open(
	ctx context.Context, _, _ string, _ *slog.Logger,
) (grpc.ClientConnInterface, func() error, error) {
	conn, err := connect.Remote(ctx, r.endpoint)
	if err != nil {
		return nil, nil, err
	}
	return conn, conn.Close, nil
}
