package framework

// Counter counts, for each node of a snapshot, the pods that a query selects. It is kept up to date with the pods, so
// that a decision costs nothing for those that are there, and valid for one decision.
type Counter struct {
	query      *PodQuery
	namespaces Namespaces
	counts     []int32
	sums       []*Sums
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

// set takes the pods that came to the i-th node and those that went.
func (c *Counter) set(i int, went, came []*PodInfo) {
	by := c.count(came) - c.count(went)
	if by == 0 {
		return
	}
	c.counts[i] += by
	for _, s := range c.sums {
		s.move(s.topology.of[i], by)
	}
}

func (c *Counter) count(pods []*PodInfo) int32 {
	n := int32(0)
	for _, p := range pods {
		if c.query.Counts(p.Pod, c.namespaces) {
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

// None says whether there is no pod in any domain.
func (s *Sums) None() bool { return int(s.have[0]) == len(s.sums) }

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

// LeastBut returns the smallest sum of a domain other than d; ok is false when there is no other.
func (s *Sums) LeastBut(d int) (least int, ok bool) {
	switch {
	case len(s.sums) < 2:
		return 0, false
	case s.sums[d] != s.least || s.have[s.least] > 1:
		return int(s.least), true
	}
	for l := s.least + 1; ; l++ {
		if s.have[l] > 0 {
			return int(l), true
		}
	}
}

// NoneBut says whether there is no pod in any domain other than d.
func (s *Sums) NoneBut(d int) bool {
	none := int(s.have[0])
	if s.sums[d] == 0 {
		none--
	}
	return none == len(s.sums)-1
}
