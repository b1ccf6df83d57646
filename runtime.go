package monoplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/client/inproc"
	"monoplane.dev/datadir"
	"monoplane.dev/nodeagent/runtime/fake"
	"monoplane.dev/nodeagent/runtime/host"
)

// Runtime runs pods behind the Container Runtime Interface. The ones of this package are HostRuntime,
// FakeRuntime and CRIRuntime; embedders may bring their own.
type Runtime interface {
	// Open connects to the runtime of one node. dir is the node's own directory. The returned function closes
	// the connection; pods go on.
	Open(ctx context.Context, node, dir string, logger *slog.Logger) (grpc.ClientConnInterface, func() error, error)
	// Simulated reports whether pods are without processes, so that one machine can be many nodes.
	Simulated() bool
}

// HostRuntime runs containers of image "host" as processes of this machine, without a container engine.
func HostRuntime() Runtime { return hostRuntime{} }

// FakeRuntime simulates: pods "run" without processes. For tests of controllers and for thousands of nodes.
func FakeRuntime() Runtime { return &fakeRuntime{} }

// CRIRuntime uses the runtime that listens on endpoint, such as "unix:///run/containerd/containerd.sock".
func CRIRuntime(endpoint string) Runtime { return criRuntime{endpoint} }

// server is what a runtime inside this process implements.
type server interface {
	runtimeapi.RuntimeServiceServer
	runtimeapi.ImageServiceServer
}

// connect makes a connection to a runtime inside this process. A call that panics fails, and the log says where.
func connect(s server, logger *slog.Logger) (grpc.ClientConnInterface, func()) {
	in := inproc.NewServer(nil, nil)
	in.OnPanic(func(method string, value any, stack []byte) {
		logger.Error("the runtime panicked", "method", method, "panic", value, "stack", string(stack))
	})
	runtimeapi.RegisterRuntimeServiceServer(in, s)
	runtimeapi.RegisterImageServiceServer(in, s)
	return in.Conn(inproc.Detached()), in.Stop
}

type hostRuntime struct{}

func (hostRuntime) Simulated() bool { return false }

func (hostRuntime) Open(_ context.Context, _, dir string, logger *slog.Logger) (grpc.ClientConnInterface, func() error, error) {
	r, err := host.New(host.Config{Dir: filepath.Join(dir, "pods"), Logger: logger})
	if err != nil {
		return nil, nil, fmt.Errorf("host runtime: %w", err)
	}
	conn, stop := connect(r, logger)
	return conn, func() error { stop(); return r.Close() }, nil
}

// fakeRuntime gives each node a range of pod addresses of its own.
type fakeRuntime struct{ opened atomic.Uint32 }

func (*fakeRuntime) Simulated() bool { return true }

// Open takes up what ran when the node was closed the last time.
func (f *fakeRuntime) Open(_ context.Context, node, dir string, logger *slog.Logger) (grpc.ClientConnInterface, func() error, error) {
	r := fake.New(fake.Config{PodCIDR: fakeRange(f.opened.Add(1) - 1)})
	if err := restoreFake(r, dir); err != nil {
		logger.Warn("the node's simulated pods begin anew", "node", node, "error", err)
	}
	conn, stop := connect(r, logger)
	return conn, func() error { stop(); return saveFake(r, dir) }, nil
}

// savedPods is the file in which a node's simulated pods outlive the process.
const savedPods = "simulated.json"

// restoreFake reads the file in the node's directory and removes it: after a crash it would tell of long ago.
func restoreFake(r *fake.Runtime, path string) error {
	dir, err := datadir.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	file, err := dir.OpenFile(savedPods, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	text, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	if err := dir.Remove(savedPods); err != nil {
		return err
	}
	return r.Restore(text)
}

// saveFake does not wait for the disk: what a crash of the machine leaves of it, the pods begin anew.
func saveFake(r *fake.Runtime, path string) error {
	dir, err := datadir.Make(path)
	if err != nil {
		return err
	}
	return dir.Replace(savedPods, datadir.Unflushed, func(f *os.File) error { return r.Save(f) })
}

// fakeRange is the n-th of the ranges 10.64.0.0/24, 10.64.1.0/24 and so on; after 16 384 they begin again.
func fakeRange(n uint32) netip.Prefix {
	n %= 1 << 14
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(64 + n>>8), byte(n), 0}), 24)
}

type criRuntime struct{ endpoint string }

func (criRuntime) Simulated() bool { return false }

func (r criRuntime) Open(ctx context.Context, _, _ string, _ *slog.Logger) (grpc.ClientConnInterface, func() error, error) {
	conn, err := dialCRI(ctx, r.endpoint)
	if err != nil {
		return nil, nil, err
	}
	return conn, conn.Close, nil
}
