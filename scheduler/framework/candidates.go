package framework

import (
	"maps"
	"slices"
	"strings"
)

// candidates are the nodes that PreFilter plugins leave for a pod; nil stands for all nodes.
type candidates struct {
	names   map[string]struct{}
	plugins []string
	// refused is for the other nodes.
	refused *Status
}

// narrow leaves only the named nodes.
func (c *candidates) narrow(plugin string, names map[string]struct{}) *candidates {
	n := &candidates{names: names}
	if c != nil {
		n.names = map[string]struct{}{}
		for name := range names {
			if _, ok := c.names[name]; ok {
				n.names[name] = struct{}{}
			}
		}
		n.plugins = c.plugins
	}
	n.plugins = append(n.plugins[:len(n.plugins):len(n.plugins)], plugin)
	n.refused = NewStatus(Unresolvable, strings.Join(n.plugins, " "),
		"node(s) didn't satisfy plugin(s) ["+strings.Join(n.plugins, " ")+"]")
	return n
}

// nodes returns the nodes to look at, without a look at the others.
func (c *candidates) nodes(s *Snapshot) []*NodeInfo {
	if c == nil {
		return s.Nodes()
	}
	list := make([]*NodeInfo, 0, len(c.names))
	for _, name := range slices.Sorted(maps.Keys(c.names)) {
		if n := s.Node(name); n != nil {
			list = append(list, n)
		}
	}
	return list
}

// leftOut returns the refusal of a node that is not among them, nil for one that is.
func (c *candidates) leftOut(node string) *Status {
	if c == nil {
		return nil
	}
	if _, ok := c.names[node]; ok {
		return nil
	}
	return c.refused
}
