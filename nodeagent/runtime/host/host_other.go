//go:build !linux

package host

import (
	"errors"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/stream"
)

type bounds struct{}

// Runtime exists on Linux only; elsewhere New always fails.
type Runtime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer
	stream.Runtime
}

// New says that real processes need Linux.
func New(Config) (*Runtime, error) {
	return nil, errors.New(
		`runtime "host" needs Linux (it relies on subreapers, pidfds and /proc); use the fake runtime here`)
}

// Close does nothing.
func (*Runtime) Close() error { return nil }
