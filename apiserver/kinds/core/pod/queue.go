package pod

import (
	"context"
	"sync"
	"time"

	"monoplane.dev/apiserver/kinds/core/pod/eviction"
)

// queueLimit is how long an eviction waits for those before it. A client that is told to come back holds nothing.
const queueLimit = 10 * time.Second

// queues let the evictions by one budget pass one at a time. The zero value is ready to use.
type queues struct {
	mu  sync.Mutex
	all map[budgetName]*queue
}

type budgetName struct{ namespace, name string }

// queue is that of one budget. Invariant: it is in the map as long as anybody waits or passes.
type queue struct {
	slot  chan struct{}
	users int
}

// enter waits until nobody else passes. The error is that of the context, or says that the client should come back.
func (q *queues) enter(ctx context.Context, namespace, name string) (release func(), err error) {
	key := budgetName{namespace, name}
	own := q.join(key)
	limit := time.NewTimer(queueLimit)
	defer limit.Stop()
	select {
	case own.slot <- struct{}{}:
		return func() { <-own.slot; q.leave(key, own) }, nil
	case <-limit.C:
		err = eviction.Lagging(name)
	case <-ctx.Done():
		err = ctx.Err()
	}
	q.leave(key, own)
	return nil, err
}

func (q *queues) join(key budgetName) *queue {
	q.mu.Lock()
	defer q.mu.Unlock()
	own := q.all[key]
	if own == nil {
		own = &queue{slot: make(chan struct{}, 1)}
		if q.all == nil {
			q.all = make(map[budgetName]*queue)
		}
		q.all[key] = own
	}
	own.users++
	return own
}

func (q *queues) leave(key budgetName, own *queue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(q.all, key)
	}
}
