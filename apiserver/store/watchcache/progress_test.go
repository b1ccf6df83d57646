package watchcache_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"

	"monoplane.dev/apiserver/store/watchcache"
)

// Whoever waits for a revision goes on when it has been applied and not before, however many wait, come and go
// meanwhile, and however large the steps are. The others hear that there will be no more.
func TestProgress(t *testing.T) {
	const clients, rounds, last = 50, 40, 1000
	errOver := errors.New("over")
	synctest.Test(t, func(t *testing.T) {
		p := watchcache.NewProgress()
		var all sync.WaitGroup
		for i := range clients {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			all.Go(func() {
				for range rounds {
					revision := p.Revision() + r.Int64N(last/rounds)
					ctx, cancel := context.WithCancel(t.Context())
					if r.IntN(4) == 0 {
						all.Go(cancel)
					}
					err := p.Wait(ctx, revision)
					cancel()
					switch {
					case err == nil && p.Revision() < revision:
						t.Errorf("goes on at %d, not %d", p.Revision(), revision)
					case err != nil && !errors.Is(err, context.Canceled) && (!errors.Is(err, errOver) || revision <= last):
						t.Errorf("waited for %d: %v", revision, err)
					}
				}
			})
		}
		r := rand.New(rand.NewPCG(clients, 1))
		for at := int64(0); at < last; {
			at = min(last, at+1+r.Int64N(1+r.Int64N(20)))
			p.Set(at)
			if r.IntN(4) == 0 {
				synctest.Wait() // all wait
			}
		}
		synctest.Wait()
		p.Stop(errOver)
		all.Wait()
	})
}
