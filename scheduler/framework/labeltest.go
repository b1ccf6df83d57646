package framework

// LabelTest judges nodes by one of their labels. It is asked once for each value of the label that it meets, and not
// once for each node: nodes are many and far apart in memory, values are few. It is valid for one decision.
type LabelTest struct {
	topology *Topology
	test     func(value string, has bool) bool
	// known are the answers by domain, one further; the first is for nodes that lack the label.
	known []answer
}

type answer int8

const (
	unknown answer = iota
	yes
	no
)

// LabelTest returns a test of the label key.
func (s *Snapshot) LabelTest(key string, test func(value string, has bool) bool) *LabelTest {
	t := s.Topology(key)
	return &LabelTest{topology: t, test: test, known: make([]answer, t.Domains()+1)}
}

// Match judges a node, which need not be in the snapshot.
func (l *LabelTest) Match(n *NodeInfo) bool {
	i, ok := n.Place()
	if !ok {
		v, has := n.Node.GetMetadata().GetLabels()[l.topology.key]
		return l.test(v, has)
	}
	d := l.topology.of[i]
	a := &l.known[d+1]
	if *a == unknown {
		value := ""
		if d != NoDomain {
			value = l.topology.values[d]
		}
		if *a = no; l.test(value, d != NoDomain) {
			*a = yes
		}
	}
	return *a == yes
}
