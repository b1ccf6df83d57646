// Package connect connects a node agent to the runtime of its node through the Container Runtime Interface: one
// inside this process, or one that listens on a socket. The functions that it returns close the connection; pods go
// on.
package connect

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/apierrors"
	"monoplane.dev/client/inproc"
	"monoplane.dev/internal/datadir"
	"monoplane.dev/nodeagent/runtime/fake"
	"monoplane.dev/nodeagent/runtime/host"
	"monoplane.dev/nodeagent/runtime/stream"
)

// server is what a runtime inside this process implements.
type server interface {
	runtimeapi.RuntimeServiceServer
	runtimeapi.ImageServiceServer
}

// serve makes a connection to a runtime inside this process. A call that panics fails, and the log says where.
func serve(s server, logger *slog.Logger) (grpc.ClientConnInterface, func()) {
	in := inproc.NewServer(nil, nil)
	in.OnPanic(func(method string, value any, stack []byte) {
		logger.Error("the runtime panicked", "method", method, "panic", apierrors.PanicText(value),
			"stack", string(stack))
	})
	runtimeapi.RegisterRuntimeServiceServer(in, s)
	runtimeapi.RegisterImageServiceServer(in, s)
	return in.Conn(inproc.Detached()), in.Stop
}

// Host makes the runtime that runs pods as processes of this machine, and with cfg.OCI those of images too.
func Host(cfg host.Config) (grpc.ClientConnInterface, func() error, error) {
	r, err := host.New(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("the runtime: %w", err)
	}
	conn, stop := serve(r, cfg.Logger)
	return Streaming{conn, r}, func() error { stop(); return r.Close() }, nil
}

// Streaming is a connection to a runtime inside this process, with what CRI itself has only by way of a server.
type Streaming struct {
	grpc.ClientConnInterface
	stream.Runtime
}

// Fake makes a runtime that simulates the pods of a node. It takes up what ran when it was
// closed the last time, which is kept in dir.
func Fake(node, dir string, cfg fake.Config, logger *slog.Logger) (grpc.ClientConnInterface, func() error) {
	r := fake.New(cfg)
	if err := restoreFake(r, dir); err != nil {
		logger.Warn("the node's simulated pods begin anew", "node", node, "error", err)
	}
	conn, stop := serve(r, logger)
	return conn, func() error { stop(); return saveFake(r, dir) }
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
