// Package controller says how a controller is declared: what it is called, what it must be allowed to do, and how it
// is made. The declarations are listed in package controllers.
package controller

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"monoplane.dev/client"
	"monoplane.dev/rules/rights"
)

// Declaration describes a controller. It is data: the server makes its table of rights of it, and the program that
// starts the controllers gives each the identity system:controller:NAME.
type Declaration struct {
	// Name is unique among controllers.
	Name string
	// Grants is what the controller may do, besides what every part of the control plane may: write events, hold
	// leases, and read priority classes.
	Grants []rights.Grant
	// New makes the controller.
	New func(Env) (Component, error)
}

// Component is what runs beside the API.
type Component interface {
	// Run works until ctx ends, and returns ctx's error.
	Run(ctx context.Context) error
	// Ready returns nil once the component works, and until then what it waits for.
	Ready() error
}

// Env is what a controller gets from the program that starts it.
type Env struct {
	// Client acts as the identity of the controller.
	Client *client.Client
	// Shared are the caches of kinds that several controllers read.
	Shared *Shared
	// Logger is never nil.
	Logger *slog.Logger
	// Registerer takes the metrics.
	Registerer prometheus.Registerer
	// RootCA returns the certificate of the authority that the API server's is signed by, PEM, as it is now; nil for a
	// server without listeners.
	RootCA func() []byte
	// Settings are the same for all controllers; each reads its own.
	Settings Settings
}

// Settings are what an operator may choose about controllers. A zero value stands for the controller's default.
type Settings struct {
	// TerminatedPodGCThreshold is how many terminal pods PodGC keeps; a negative one keeps all (spec: GC-4).
	TerminatedPodGCThreshold int
}
