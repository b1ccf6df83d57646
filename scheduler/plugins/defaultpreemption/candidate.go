package defaultpreemption

import (
	"cmp"
	"time"

	"monoplane.dev/scheduler/framework"
)

// candidate is a node that fits without some pods of lower priority, and what the loss of these would be.
type candidate struct {
	node *framework.NodeInfo
	// victims is how many they are, broken how many of them break a budget.
	victims, broken int
	// sum is that of their priorities, top the highest one; since is when the first of that priority started.
	sum   int64
	top   int32
	since time.Time
}

// offset makes every priority positive, so that of several victims with negative ones fewer are better (spec:
// PREEMPT-1).
const offset = 1 << 31

func (c *candidate) add(p *framework.PodInfo, breaks bool) {
	at := started(p)
	if c.victims == 0 || p.Priority > c.top || p.Priority == c.top && at.Before(c.since) {
		c.top, c.since = p.Priority, at
	}
	c.victims++
	c.sum += int64(p.Priority) + offset
	if breaks {
		c.broken++
	}
}

// better says whether the victims of c are a smaller loss: fewer broken budgets, then a lower highest priority, a
// smaller sum of priorities, fewer victims, and last a later start of the one of the highest priority that started
// first.
func (c *candidate) better(o *candidate) bool {
	return cmp.Or(
		cmp.Compare(c.broken, o.broken),
		cmp.Compare(c.top, o.top),
		cmp.Compare(c.sum, o.sum),
		cmp.Compare(c.victims, o.victims),
		o.since.Compare(c.since),
	) < 0
}
