// Package controllertest runs controllers in tests as the program does: with the caches that they share.
package controllertest

import (
	"context"

	"golang.org/x/sync/errgroup"

	"monoplane.dev/controllers/controller"
)

// Component is what runs until its context ends.
type Component interface {
	Run(ctx context.Context) error
}

// Run runs the shared caches and controllers that were made with them until ctx ends, and returns ctx's error.
func Run(ctx context.Context, shared *controller.Shared, controllers ...Component) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, c := range controllers {
		g.Go(func() error { return c.Run(ctx) })
	}
	g.Go(func() error { return shared.Run(ctx) })
	return g.Wait()
}
