package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// drive calls f n times from the given number of clients and returns the calls per second. f gets the number
// of the client and a number that is unique among all calls.
func drive(ctx context.Context, clients, n int, f func(ctx context.Context, client, i int) error) (float64, error) {
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	begin := make(chan struct{})
	var ready sync.WaitGroup
	for c := range clients {
		ready.Add(1)
		g.Go(func() error {
			ready.Done()
			<-begin
			for {
				i := int(next.Add(1)) - 1
				if i >= n || ctx.Err() != nil {
					return ctx.Err()
				}
				if err := f(ctx, c, i); err != nil {
					return err
				}
			}
		})
	}
	ready.Wait()
	start := time.Now()
	close(begin)
	err := g.Wait()
	return float64(n) / time.Since(start).Seconds(), err
}
