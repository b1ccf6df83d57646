package framework

// Counter counts, for each node of a snapshot, the pods that a query selects. It is kept up to date with the pods, so that a
// decision costs nothing for those that are there, and valid for one decision.
type Counter struct {
	query  *PodQuery
	counts []int32
	sums   []*Sums
	// used is when it was last asked for.
	used uint64
}

// Node returns the count of the i-th node of the snapshot.
func (c *Counter) Node(i int) int { return int(c.counts[i]) }

// Sums returns the counts added up by the domains of t, a topology of the same snapshot.
func (c *Counter) Sums(t *Topology) *Sums {
	for _, s := range c.sums {
		if s.topology == t {
			return s
		}
	}
	s := newSums(t, c.counts)
	c.sums = append(c.sums, s)
	return s
}

// set takes the newer state of the i-th node.
func (c *Counter) set(i int, was, now *NodeInfo) {
	by := c.difference(was.pods, now.pods)
	if by == 0 {
		return
	}
	c.counts[i] += by
	for _, s := range c.sums {
		s.move(s.topology.of[i], by)
	}
}

// difference returns by how much the count of a node changes. Most changes are one pod that comes or goes, or a newer state
// of one, so that the pods that stayed are told by their place.
func (c *Counter) difference(was, now []*PodInfo) int32 {
	for len(was) > 0 && len(now) > 0 && was[0] == now[0] {
		was, now = was[1:], now[1:]
	}
	for len(was) > 0 && len(now) > 0 && was[len(was)-1] == now[len(now)-1] {
		was, now = was[:len(was)-1], now[:len(now)-1]
	}
	return c.count(now) - c.count(was)
}

func (c *Counter) count(pods []*PodInfo) int32 {
	n := int32(0)
	for _, p := range pods {
		if c.query.Counts(p.Pod) {
			n++
		}
	}
	return n
}

// Sums are a counter's counts, added up by the domains of a topology.
type Sums struct {
	topology *Topology
	sums     []int32
	// least is the smallest sum; have says how many domains have a sum.
	least int32
	have  map[int32]int32
}

func newSums(t *Topology, counts []int32) *Sums {
	s := &Sums{topology: t, sums: make([]int32, t.Domains()), have: map[int32]int32{}}
	for i, d := range t.of {
		if d != NoDomain {
			s.sums[d] += counts[i]
		}
	}
	for _, sum := range s.sums {
		s.gain(sum)
	}
	return s
}

// Domain returns the sum of a domain.
func (s *Sums) Domain(d int) int { return int(s.sums[d]) }

// Least returns the smallest sum of a domain; 0 when there is no domain.
func (s *Sums) Least() int { return int(s.least) }

// gain notes that one more domain has this sum.
func (s *Sums) gain(sum int32) {
	if len(s.have) == 0 || sum < s.least {
		s.least = sum
	}
	s.have[sum]++
}

// move changes the sum of a domain.
func (s *Sums) move(d, by int32) {
	if d == NoDomain {
		return
	}
	was := s.sums[d]
	s.sums[d] += by
	s.gain(s.sums[d])
	if s.have[was]--; s.have[was] == 0 {
		delete(s.have, was)
	}
	// Sums change by a few pods at a time, so that the next one is not far.
	for s.have[s.least] == 0 {
		s.least++
	}
}
