//go:build !linux

package ocinode

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"

	"google.golang.org/grpc"

	"monoplane.dev/internal/userids"
	"monoplane.dev/nodeagent/runtime/oci/helper"
)

// Runtime exists on Linux only.
type Runtime struct{}

// New returns a runtime that cannot be opened.
func New(Config) *Runtime { return &Runtime{} }

// Check returns why images cannot be run here.
func Check() error { return helper.Check() }

// IDs returns none.
func IDs() userids.Maps { return userids.Maps{} }

// Remove fails.
func Remove(context.Context, string) error { return helper.Check() }

// InUse returns nil: there are no such addresses here.
func InUse(netip.Prefix) error { return nil }

// ErrHides is the error of InUse for a range that can be had.
var ErrHides = errors.New("the range hides addresses")

// CNI returns nil.
func (*Runtime) CNI() *CNI { return nil }

// NotForwarded returns nothing.
func (*Runtime) NotForwarded() string { return "" }

// Simulated reports that pods have processes.
func (*Runtime) Simulated() bool { return false }

// Open fails.
func (*Runtime) Open(
	context.Context, string, string, *slog.Logger,
) (grpc.ClientConnInterface, func() error, error) {
	return nil, nil, helper.Check()
}
