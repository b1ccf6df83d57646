package plan

import "time"

// How long a node keeps a pod that has failed: not at all the first time, then for a time that doubles from the first
// to the second of these. A node whose pod has not failed for twice the second begins anew.
const (
	firstPause = time.Second
	maxPause   = 15 * time.Minute
)

// Backoff remembers on which nodes pods of a DaemonSet have failed. The pods of a node that the agent refuses would
// otherwise be made and deleted without end. The zero value is ready.
type Backoff struct {
	generation int64
	nodes      map[string]pause
}

type pause struct {
	since time.Time
	long  time.Duration
}

// Reset begins anew when the DaemonSet is another than it was: its next pods may do better.
func (b *Backoff) Reset(generation int64) {
	if b.generation != generation {
		b.generation, b.nodes = generation, nil
	}
}

// left returns how long a failed pod of a node is to be kept from now on.
func (b *Backoff) left(node string, now time.Time) time.Duration {
	p, ok := b.nodes[node]
	if !ok || now.Sub(p.since) > 2*maxPause {
		return 0
	}
	return max(0, p.since.Add(p.long).Sub(now))
}

// failed notes that a failed pod of a node is deleted, and forgets the nodes on which none has failed for long.
func (b *Backoff) failed(node string, now time.Time) {
	for name, p := range b.nodes {
		if now.Sub(p.since) > 2*maxPause {
			delete(b.nodes, name)
		}
	}
	if b.nodes == nil {
		b.nodes = map[string]pause{}
	}
	long := firstPause
	if p, ok := b.nodes[node]; ok {
		long = min(2*p.long, maxPause)
	}
	b.nodes[node] = pause{since: now, long: long}
}
