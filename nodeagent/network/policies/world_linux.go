package policies

import (
	"maps"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	networkingv1 "monoplane.dev/api/networking/v1"
	"monoplane.dev/client/cache"
)

// Pod is what policies need to know of a pod.
type Pod struct {
	Labels map[string]string
	// Addrs are the pod's, at most one of each family.
	Addrs []netip.Addr
	// Ports are those that have names.
	Ports []NamedPort
	// Here says that the pod is on this node, which isolates it. Others count as peers.
	Here bool
}

// NamedPort is a port of a pod that policies can name.
type NamedPort struct {
	Name string
	// Protocol is tcp, udp or sctp.
	Protocol string
	Number   uint16
}

// World is what is known, and what the table has to be because of it. Its methods are called by one goroutine at a
// time, and take time for what they change: that of a pod that comes grows with the number of peers that policies in
// force name, and not with that of pods.
type World struct {
	namespaces map[string]labels.Set
	// pods are by namespace and by the name that the caller gives them.
	pods     map[string]map[string]*member
	policies map[string]map[cache.Key]*policy
	node     []netip.Addr

	content
	touched *touched
}

// member is a pod. It is not changed once made, but for what isolates it.
type member struct {
	Pod

	namespace string
	isolation *isolation
}

// isolation is what isolates a pod.
type isolation struct {
	policies []*policy
	// chains are those of the pod; empty for a direction in which it is not isolated.
	chains [2]string
}

// policy is a Policy with the number of pods here that it isolates. It is in force while there are any.
type policy struct {
	*Policy

	users int
}

// NewWorld returns a world of which nothing is known.
func NewWorld() *World {
	return &World{
		namespaces: map[string]labels.Set{}, pods: map[string]map[string]*member{},
		policies: map[string]map[cache.Key]*policy{}, content: newContent(), touched: newTouched(),
	}
}

// SetNode says which addresses are the node's own: its traffic with its pods is not judged.
func (w *World) SetNode(addrs []netip.Addr) {
	now := slices.Clone(addrs)
	slices.SortFunc(now, netip.Addr.Compare)
	now = slices.Compact(now)
	for _, a := range now {
		w.count(element{fixedName(nodeSet, a.Is6()), addressKey(a)})
	}
	for _, a := range w.node {
		w.uncount(element{fixedName(nodeSet, a.Is6()), addressKey(a)})
	}
	w.node = now
}

// SetNamespace says which labels a namespace has; exists is false for one that is gone.
func (w *World) SetNamespace(name string, of map[string]string, exists bool) {
	have, had := w.namespaces[name]
	if exists == had && maps.Equal(have, of) {
		return
	}
	if exists {
		w.namespaces[name] = labels.Set(of)
	} else {
		delete(w.namespaces, name)
	}
	for _, m := range w.pods[name] {
		w.leave(m)
		w.enter(m)
	}
}

// SetPod says what a pod is like; nil for one that is gone. The caller chooses the ids within a namespace. Of the pods
// that are here no two have an address in common.
func (w *World) SetPod(namespace, id string, p *Pod) {
	old := w.pods[namespace][id]
	if p != nil {
		m := &member{Pod: *p, namespace: namespace}
		if w.pods[namespace] == nil {
			w.pods[namespace] = map[string]*member{}
		}
		w.pods[namespace][id] = m
		m.isolation = w.isolate(m)
		w.enter(m)
	} else if old != nil {
		if delete(w.pods[namespace], id); len(w.pods[namespace]) == 0 {
			delete(w.pods, namespace)
		}
	}
	if old != nil {
		w.leave(old)
		w.release(old, old.isolation)
	}
}

// SetPolicy says what a policy says; nil for one that is gone.
func (w *World) SetPolicy(key cache.Key, p *networkingv1.NetworkPolicy) {
	of := w.policies[key.Namespace]
	switch {
	case p != nil && of == nil:
		w.policies[key.Namespace] = map[cache.Key]*policy{key: {Policy: Compile(p)}}
	case p != nil:
		of[key] = &policy{Policy: Compile(p)}
	default:
		if delete(of, key); len(of) == 0 {
			delete(w.policies, key.Namespace)
		}
	}
	for _, m := range w.pods[key.Namespace] {
		if m.Here {
			old := m.isolation
			m.isolation = w.isolate(m)
			w.release(m, old)
		}
	}
}

// isolate puts the policies of a pod into force.
func (w *World) isolate(m *member) *isolation {
	out := &isolation{}
	if !m.Here {
		return out
	}
	var of [2][]string
	for _, p := range w.policies[m.namespace] {
		if !p.Selects.Matches(labels.Set(m.Labels)) {
			continue
		}
		out.policies = append(out.policies, p)
		if p.users++; p.users == 1 {
			w.enforce(p)
		}
		for d, c := range p.Chains {
			if c != nil {
				of[d] = append(of[d], c.Name)
			}
		}
	}
	for d, names := range of {
		if len(names) == 0 {
			continue
		}
		slices.Sort(names)
		c := Chain{Direction: Direction(d), Policies: names}.named("pods/" + Direction(d).String())
		w.addChain(c)
		out.chains[d] = c.Name
		for _, a := range m.Addrs {
			e := element{fixedName(Direction(d).String(), a.Is6()), addressKey(a)}
			w.isolated[e] = verdict{c.Name, out}
			w.touched.elements[e] = true
		}
	}
	return out
}

// release takes back what isolate has done, but for addresses that something else has isolated since.
func (w *World) release(m *member, old *isolation) {
	for d, name := range old.chains {
		if name == "" {
			continue
		}
		for _, a := range m.Addrs {
			e := element{fixedName(Direction(d).String(), a.Is6()), addressKey(a)}
			if w.isolated[e].by == old {
				delete(w.isolated, e)
				w.touched.elements[e] = true
			}
		}
		w.dropChain(name)
	}
	for _, p := range old.policies {
		if p.users--; p.users == 0 {
			w.relax(p)
		}
	}
}

// enforce adds what a policy needs in the table.
func (w *World) enforce(p *policy) {
	for name, of := range p.Peers {
		w.use(name, &of)
	}
	for _, c := range p.Chains {
		if c != nil {
			for _, name := range namedIn(c) {
				w.use(name, nil)
			}
			w.addChain(*c)
		}
	}
}

// relax takes back what enforce has done.
func (w *World) relax(p *policy) {
	for _, c := range p.Chains {
		if c != nil {
			w.dropChain(c.Name)
			for _, name := range namedIn(c) {
				w.unuse(name)
			}
		}
	}
	for name := range p.Peers {
		w.unuse(name)
	}
}

// namedIn returns the sets of ports that a chain refers to, each once.
func namedIn(c *Chain) []string {
	var out []string
	for _, a := range c.Allow {
		out = append(out, a.Named...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// use adds a pair of sets with what belongs into them, unless it is there.
func (w *World) use(name string, of *Peers) {
	if s := w.sets[name]; s != nil {
		s.users++
		return
	}
	s := &set{name: name, peers: of, users: 1, of: map[*member][]element{}}
	w.addSet(s)
	for _, pods := range w.pods {
		for _, m := range pods {
			w.put(s, m)
		}
	}
}

// unuse drops sets that nothing uses any more.
func (w *World) unuse(name string) {
	s := w.sets[name]
	if s.users--; s.users > 0 {
		return
	}
	for _, elements := range s.of {
		for _, e := range elements {
			w.uncount(e)
		}
	}
	w.dropSet(s)
}

// enter puts a pod into all sets that it belongs to.
func (w *World) enter(m *member) {
	for _, s := range w.sets {
		w.put(s, m)
	}
}

func (w *World) leave(m *member) {
	for _, s := range w.sets {
		for _, e := range s.of[m] {
			w.uncount(e)
		}
		delete(s.of, m)
	}
}

// put puts a pod into a pair of sets, if it belongs there and is not there yet.
func (w *World) put(s *set, m *member) {
	if _, in := s.of[m]; in {
		return
	}
	var elements []element
	if s.peers != nil {
		if w.selects(s.peers, m) {
			for _, a := range m.Addrs {
				elements = append(elements, element{familyName(s.name, a.Is6()), addressKey(a)})
			}
		}
	} else {
		for _, p := range m.Ports {
			if s.name != portsPrefix+p.Protocol+"/"+p.Name {
				continue
			}
			for _, a := range m.Addrs {
				elements = append(elements, element{familyName(s.name, a.Is6()), portKey(a, p)})
			}
		}
	}
	for _, e := range elements {
		w.count(e)
	}
	if len(elements) > 0 {
		s.of[m] = elements
	}
}

func (w *World) selects(p *Peers, m *member) bool {
	if p.Namespaces == nil {
		return p.Namespace == m.namespace && p.Pods.Matches(labels.Set(m.Labels))
	}
	of, known := w.namespaces[m.namespace]
	return known && p.Namespaces.Matches(of) && p.Pods.Matches(labels.Set(m.Labels))
}
